from contextlib import contextmanager

import pytest
import torch
from reference import (
    FAMILIES,
    LABELS,
    VOCABULARY,
    assert_weights_close,
    dense_weights,
    some_updates,
    tiny_batch,
    tiny_model,
    tiny_replica,
    tiny_settings,
    tiny_tokenizer,
)
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from seedflood.errors import ModelError
from seedflood.training.models import prepare_model
from seedflood.training.seedflood.estimate import two_sided
from seedflood.training.seedflood.layers import attach
from seedflood.training.seedflood.replica import Replica
from seedflood.training.seedflood.slots import Probe
from seedflood.training.seedflood.subspace import Moves

pytestmark = pytest.mark.usefixtures("drawn_once")

KINDS = [(family, tied) for family in FAMILIES for tied in (True, False)]


def logits(model, tokens):
    with torch.inference_mode():
        return model(input_ids=tokens).logits


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_a_live_model_without_updates_is_the_model(family, tied):
    tokens = torch.randint(1, VOCABULARY, (3, 9))
    expected = logits(tiny_model(family, tied=tied), tokens)
    torch.testing.assert_close(logits(tiny_replica(family, tied=tied).model, tokens), expected, rtol=1e-4, atol=1e-5)


class Elsewhere(torch.Tensor):
    """A tensor that says that it is on a GPU: with others it can only be computed once it has been moved."""

    @staticmethod
    def __new__(cls, here):
        made = torch.Tensor._make_wrapper_subclass(cls, here.shape, dtype=here.dtype, device="cuda")
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default and torch.device(kwargs.get("device", "cuda")).type == "cpu":
            return args[0].here.clone()
        raise RuntimeError("expected all tensors to be on the same device")

    def __deepcopy__(self, memo):
        return Elsewhere(self.here.clone())


def test_scaled_embeddings_are_known_on_a_gpu():
    """Their scale is a buffer, and what is tried out is in host memory."""
    model = tiny_model("gemma3")
    model.get_input_embeddings()._buffers["embed_scale"] = Elsewhere(torch.tensor(4.0))
    attach(model)


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_the_live_path_gives_the_output_of_folded_weights(family, tied):
    replica = tiny_replica(family, tied=tied)
    replica.apply(some_updates(20))
    plain = tiny_model(family, tied=tied)
    expected = dense_weights(plain, replica.subspace, some_updates(20), refresh_period=10, rate=0.01 / 2)
    assert_weights_close(replica.weights(), expected)
    plain.load_state_dict(replica.weights())
    tokens = torch.randint(1, VOCABULARY, (3, 9))
    before = logits(tiny_model(family, tied=tied), tokens)
    live = logits(replica.model, tokens)
    assert float((live - before).abs().max()) > 0.05
    torch.testing.assert_close(live, logits(plain, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_every_parameter_is_a_slot_once(family, tied):
    replica, plain = tiny_replica(family, tied=tied), tiny_model(family, tied=tied)
    assert len(replica.slots) == len(list(plain.parameters()))
    assert replica.weights().keys() == dict(plain.named_parameters(remove_duplicate=False)).keys()


def test_increments_survive_half_precision():
    replica = Replica(prepare_model(tiny_model("opt"), tiny_tokenizer(), dtype="bfloat16"), tiny_settings())
    linear = replica.model.get_decoder().layers[0].fc1
    slot = linear.slots["weight"]
    x = torch.ones(1, 16, dtype=torch.bfloat16)
    with torch.inference_mode():
        before = linear(x)
        slot.a[0, 0, 0] = 0.02
        after = linear(x)
    expected = 0.02 * slot.u_MR[:, 0] * slot.v_KR[:, 0].sum()
    error = (after - before).to(torch.float32) - expected
    assert float(error.abs().max()) <= float(after.abs().max()) * 2**-7


@contextmanager
def probe_coordinate(replica, i, j, epsilon=0.5):
    """A two-sided probe along the same coordinate of every slot, for 4 rows of 5 tokens."""
    places = [replica.subspace.places_of(index).start for index in range(len(replica.slots))]
    rank = replica.subspace.rank
    moves = [i * rank + j if slot.slot.is_matrix else i for slot in replica.slots]
    place_S = torch.tensor(places) + torch.tensor(moves)
    up = Moves(place_S.unsqueeze(0), torch.ones_like(place_S).unsqueeze(0))
    a_PF = two_sided(replica.live.a_PF[0], up, epsilon)
    with replica.live.computing(a_PF), replica.live.probing(Probe(rows=4, length=5)):
        yield


@pytest.mark.parametrize("shape", [(4, 5, 16), (20, 16), (4, 16), (1, 5, 16)])
def test_a_probe_moves_each_half_of_the_rows_its_own_way(shape):
    replica = tiny_replica("opt")
    linear = replica.model.get_decoder().layers[0].fc1
    x = torch.randn(shape)
    base = nn.functional.linear(x.expand(4, *shape[1:]) if shape[0] == 1 else x, linear.weight, linear.bias)
    epsilon, (i, j) = 0.5, (1, 2)
    with torch.inference_mode(), probe_coordinate(replica, i, j, epsilon):
        y = linear(x)
    weight, bias = linear.slots["weight"], linear.slots["bias"]
    z = torch.outer(weight.u_MR[:, i], weight.v_KR[:, j])
    x = x.expand(4, *shape[1:]) if shape[0] == 1 else x
    moved = epsilon * (x @ z.T + bias.u_MR[:, i])
    moved[len(moved) // 2 :] *= -1
    torch.testing.assert_close(y, base + moved, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 5), (5,)])
def test_positions_shared_by_all_rows_are_expanded(shape):
    replica = tiny_replica("gpt2")
    embedding = replica.model.transformer.wpe
    index = torch.arange(5).view(shape)
    with torch.inference_mode(), probe_coordinate(replica, 0, 0):
        y = embedding(index)
    assert y.shape == (4, 5, 16)
    assert torch.equal(y[0], y[1])
    assert not torch.allclose(y[0], y[2])


def test_a_shape_whose_rows_cannot_be_told_is_refused():
    replica = tiny_replica("opt")
    with (
        probe_coordinate(replica, 0, 0),
        pytest.raises(ModelError, match=r"Linear was given an input of shape \(7, 16\)"),
    ):
        replica.model.get_decoder().layers[0].fc1(torch.randn(7, 16))


def test_a_parameter_in_an_unknown_module_is_named_and_nothing_is_changed():
    model = nn.Sequential(nn.Linear(3, 3), nn.Conv2d(1, 1, 1))
    with pytest.raises(ModelError, match=r"1\.weight, 1\.bias: modules of class Conv2d are not supported"):
        attach(model)
    assert type(model[0]) is nn.Linear


def test_an_rms_norm_with_another_formula_is_refused():
    class TwiceRMSNorm(LlamaRMSNorm):
        def forward(self, hidden_states):
            return 2 * super().forward(hidden_states)

    norm = TwiceRMSNorm(8)
    with torch.no_grad():
        norm.weight.fill_(0.3)
    with pytest.raises(ModelError, match="TwiceRMSNorm"):
        attach(nn.Sequential(norm))


def test_an_embedding_that_does_not_use_its_parents_forward_is_refused():
    class Odd(nn.Embedding):
        def forward(self, input):
            return nn.functional.embedding(input, self.weight) * 2

    with pytest.raises(ModelError, match="Odd"):
        attach(nn.Sequential(Odd(3, 3)))


def test_a_linear_layer_with_a_forward_of_its_own_is_trained_if_it_computes_the_same():
    class Same(nn.Linear):
        def forward(self, x):
            return x @ self.weight.T + self.bias

    class Odd(nn.Linear):
        def forward(self, x):
            return x @ self.weight.T + 2 * self.bias

    attach(nn.Sequential(Same(3, 3)))
    with pytest.raises(ModelError, match="Odd"):
        attach(nn.Sequential(Odd(3, 3)))


def test_a_step_writes_no_weight():
    replica = tiny_replica("opt")
    before = {name: (weight._version, weight.data_ptr()) for name, weight in replica.model.named_parameters()}
    replica.measure(0, 1, LABELS, tiny_batch())
    replica.apply(some_updates(10))
    after = {name: (weight._version, weight.data_ptr()) for name, weight in replica.model.named_parameters()}
    assert after == before
