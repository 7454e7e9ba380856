import numpy
import pytest
import torch
from dense_gossip import exchange, sent, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import trainer_of
from reference import FAMILIES, tiny_model

from seedflood.errors import PeerError
from seedflood.training.causal import CausalModel
from seedflood.training.evaluation import evaluate
from seedflood.training.gasloc.initial import draw_weights
from seedflood.training.gasloc.outer import OuterSettings, Term
from seedflood.training.models import distinct_parameters, load_model


def pretrain(outer, graph="ring", *, rounds, steps, workers=4, **settings):
    trainers = [trainer_of(k, outer, **settings) for k in range(workers)]
    weights = weights_of(graph, workers)
    distances = []
    for _ in range(rounds):
        for trainer in trainers:
            trainer.worker.take_steps(steps)
        distances.append(exchange([trainer.outer for trainer in trainers], weights)[0].distance)
    return trainers, distances


@pytest.mark.parametrize("encoding", ["float32", "bfloat16", "uint8"])
def test_workers_that_gossip_learn_and_stay_together(encoding):
    outer = OuterSettings(gamma=0.3, encoding=encoding)
    trainers, distances = pretrain(outer, rounds=12, steps=5)
    before = trainer_of().evaluate().figures["perplexity"]
    for trainer in trainers:
        assert trainer.evaluate().figures["perplexity"] < 0.6 * before
    assert 0 < distances[-1] < 0.2


@pytest.mark.long
@pytest.mark.parametrize("is_fresh", [False, True])
@settings(max_examples=4)
@given(
    optimiser=st.sampled_from([("AdamW", 1e-3, {}), ("AdamW", 3e-2, {}), ("SGD", 1.0, {"momentum": 0.9})]),
    gamma=st.sampled_from([0.0, 0.5, 0.9]),
    graph=st.sampled_from(["ring", "star", "complete"]),
    encoding=st.sampled_from(["float32", "uint8"]),
    speeds=st.lists(st.sampled_from([1, 3, 12]), min_size=4, max_size=4),
    apart=st.integers(0, 6),
)
def test_no_honest_host_comes_near_the_norm_at_which_it_is_refused(
    is_fresh, optimiser, gamma, graph, encoding, speeds, apart
):
    """apart: for so many rounds the last one trains by itself."""
    name, rate, options = optimiser
    outer = OuterSettings(gamma=gamma, encoding=encoding)
    how = {"optimiser": name, "learning_rate": rate, "options": options}
    trainers = [trainer_of(k, outer, is_fresh=is_fresh, **how) for k in range(4)]
    weights = weights_of(graph, 4)
    for round_ in range(8):
        for trainer, steps in zip(trainers, speeds, strict=True):
            trainer.worker.take_steps(steps)
            assert torch.linalg.vector_norm(trainer.worker.flat.values_F) < trainer.norm_max / 10
        if round_ < apart:
            exchange([one.outer for one in trainers[:3]], weights_of("complete", 3))
        else:
            exchange([one.outer for one in trainers], weights)


def test_the_norm_at_which_parameters_are_refused_is_the_same_on_all_hosts_whatever_they_have_learned():
    one, other = trainer_of(1), trainer_of(2)
    other.worker.take_steps(5)
    assert one.norm_max == other.norm_max


def test_a_round_between_two_trainers_by_their_methods():
    one, other = trainer_of(1), trainer_of(2)
    for trainer in (one, other):
        trainer.worker.take_steps(2)
        trainer.outer.propose()
    pulls = []
    for trainer, partner in ((one, other), (other, one)):
        offer = partner.outer.offer
        pulls.append(Term(0.5, trainer.difference(sent(offer), offer.digest)))
    for trainer, pull in zip((one, other), pulls, strict=True):
        assert trainer.outer.mix([pull]).neighbours == 1
    torch.testing.assert_close(one.worker.flat.values_F, other.worker.flat.values_F, rtol=0, atol=1e-6)
    assert (one.outer.round, one.worker.step) == (1, 2)


def test_local_steps_go_on_while_an_overlapped_offer_is_open():
    trainer = trainer_of(1, OuterSettings())
    trainer.worker.take_steps(1)
    payload = sent(trainer.outer.propose())
    trainer.worker.take_steps(2)
    assert numpy.array_equal(sent(trainer.outer.offer), payload)


def test_a_foreign_offer_is_refused():
    with pytest.raises(PeerError):
        trainer_of().take(numpy.zeros(12, dtype=numpy.uint8), bytes(32), may_be_far=True)


def test_an_exported_model_is_the_trained_one(tmp_path):
    trainer = trainer_of()
    trainer.worker.take_steps(3)
    exported = load_model(str(trainer.export(tmp_path / "model", "A card.")))
    figures = evaluate(exported.causal, trainer.task).figures
    assert figures == pytest.approx(trainer.evaluate().figures, rel=1e-6)


@pytest.mark.parametrize("tokens_at_once", [1, 36, 10**6])
def test_figures_are_of_all_rows_whatever_the_batches(tokens_at_once):
    trainer = trainer_of()
    found = evaluate(trainer.worker.causal, trainer.task, tokens_per_batch_max=tokens_at_once)
    tokens_BT = trainer.task.validation_ST.long()
    with torch.no_grad():
        logits = trainer.base.model(input_ids=tokens_BT).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens_BT[:, 1:].flatten())
    assert found.loss == pytest.approx(float(expected), rel=1e-5)
    assert found.figures["perplexity"] == pytest.approx(float(expected.exp()), rel=1e-5)
    assert found.rows == 10


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_from_scratch_follow_from_the_seed_alone(family):
    first, second, other = (tiny_model(family, seed=seed) for seed in (1, 2, 3))
    for module, run_seed in ((first, 5), (second, 5), (other, 6)):
        draw_weights(module, run_seed)
    alike = dict(distinct_parameters(second))
    unlike = dict(distinct_parameters(other))
    drawn = 0
    for name, parameter in distinct_parameters(first):
        parameter = parameter.detach()
        assert torch.equal(parameter, alike[name])
        drawn += not torch.equal(parameter, unlike[name])
        if parameter.dim() == 1:
            assert parameter.unique().tolist() in ([0.0], [1.0])
        else:
            assert float(parameter.std()) == pytest.approx(0.3, rel=0.2)
    assert drawn == sum(parameter.dim() > 1 for parameter in first.parameters())
    tokens_BT = torch.arange(8).unsqueeze(0)
    assert CausalModel(first).hidden_states(tokens_BT).isfinite().all()


def test_drawing_weights_leaves_the_random_numbers_of_torch_alone():
    module = tiny_model("opt")
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    draw_weights(module, 1)
    assert torch.equal(torch.rand(3), expected)
