import pytest
import torch
from reference import FAMILIES, tiny_model

from seedflood.training.causal import CausalModel
from seedflood.training.gasloc.flat import ALIGNMENT, FlatModel, Layout
from seedflood.training.models import distinct_parameters

TOKENS = torch.arange(20).view(2, 10)


def logits_of(module):
    model = CausalModel(module)
    return model.logits(model.hidden_states(TOKENS))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_flat_model_computes_what_it_computed(family, tied):
    module = tiny_model(family, tied=tied)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    expected = logits_of(module)
    flat = FlatModel(module)
    assert torch.equal(logits_of(module), expected)
    for name, value in flat.weights().items():
        if name in before:
            assert torch.equal(value, before[name])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_written_to_the_flat_tensor_is_what_the_model_computes_with(family):
    flat, other = FlatModel(tiny_model(family)), FlatModel(tiny_model(family, seed=1))
    flat.values_F.copy_(other.values_F)
    assert torch.equal(logits_of(flat.module), logits_of(other.module))


def test_gradients_arrive_in_one_tensor():
    plain, flat = tiny_model("opt"), FlatModel(tiny_model("opt"))
    logits_of(plain.requires_grad_(True)).square().sum().backward()
    for _ in range(2):
        flat.gradients_F.zero_()
        logits_of(flat.module).square().sum().backward()
    views = flat.layout.views(flat.gradients_F)
    assert all(torch.equal(views[name], parameter.grad) for name, parameter in distinct_parameters(plain))


@pytest.mark.parametrize("family", FAMILIES)
def test_matrices_come_first_and_every_number_has_one_place(family):
    module = tiny_model(family)
    layout = Layout.of(module)
    sizes = dict(distinct_parameters(module))
    assert {place.name for place in layout.places} == set(sizes)
    end = 0
    for place in layout.places:
        assert place.start % ALIGNMENT == 0
        assert 0 <= place.start - end < ALIGNMENT
        assert (place.start < layout.decaying) == (sizes[place.name].dim() > 1)
        end = place.end
    assert end <= layout.size < end + ALIGNMENT


def test_groups_are_the_same_memory():
    flat = FlatModel(tiny_model("opt"))
    matrices, others = flat.groups()
    assert len(matrices) + len(others) == len(flat.values_F)
    with torch.no_grad():
        matrices.fill_(1.0)
        others.fill_(2.0)
    flat.gradients_F.fill_(3.0)
    assert flat.values_F.sum() == len(matrices) + 2 * len(others)
    assert (others.grad == 3).all()


def test_weights_are_copies():
    flat = FlatModel(tiny_model("gpt2"))
    head = flat.weights()["lm_head.weight"]
    flat.values_F.zero_()
    assert head.any()
