"""A replica over several ranks computes, folds and exports what a whole one does.

The ranks of these tests are replicas in one process that look into each other; those of processes have their tests in
tests/system/test_rank_processes.py.
"""

import importlib.util
from collections.abc import Iterator

import pytest
import torch
from elsewhere import elsewhere
from families import MIXTURES, family_model
from reference import TEXTS, objective_of, some_updates, tiny_batch, tiny_model, tiny_settings, tiny_tokenizer

from seedflood.training.models import BaseModel, prepare_model
from seedflood.training.ranks import ALONE, OneRank, Ranks
from seedflood.training.seedflood import fetched
from seedflood.training.seedflood.replica import Replica

KINDS = [
    "int8",
    pytest.param("nf4", marks=pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no nf4")),
]

pytestmark = pytest.mark.usefixtures("drawn_once")


class Neighbours(Ranks):
    """A rank that reads from the others what it lacks, and computes all pieces itself. all: the ranks, by number."""

    def __init__(self, number: int, count: int, all_ranks: "list[Neighbours]", device: str = "cpu") -> None:
        self.number, self.count, self.device = number, count, torch.device(device)
        self._held = {}
        self._all = all_ranks
        all_ranks.append(self)

    in_turn = OneRank.in_turn
    order = OneRank.order

    def gather(self, number, part, *, is_master=False):
        return torch.cat([one._held[number].block(part, is_master=is_master) for one in self._all])

    def lookup(self, number, index_X):
        return sum(one._held[number].found(index_X) for one in self._all)


def replicas(count, family, tied, dtype, quantize=None, **changes) -> Iterator[Replica]:
    """A whole one, then those of `count` ranks."""
    ranks: list[Neighbours] = []
    for one in (None, *(Neighbours(number, count, ranks) for number in range(count))):
        base = prepare_model(tiny_model(family, tied=tied), tiny_tokenizer(), dtype=dtype)
        settings = tiny_settings(refresh_period=3, **changes)
        yield Replica(base, settings, quantize=quantize, ranks=one or ALONE)


@pytest.mark.parametrize(("count", "dtype"), [(2, "float32"), (3, "bfloat16")])
@pytest.mark.parametrize(("family", "tied"), [("opt", True), ("gpt2", True), ("gemma3", False), ("llama", False)])
def test_ranks_compute_and_fold_what_one_process_does(family, tied, dtype, count):
    whole, *parts = replicas(count, family, tied, dtype)
    updates = some_updates(12, steps=6, scalar_max=1 << 20)
    for one in (whole, *parts):
        one.apply(updates)
        one.open_epoch(2)
    for labelled in (True, False):
        batch = tiny_batch(labelled=labelled)
        objective = objective_of(batch)
        expected, got = (one.measure(6, 3, objective, batch) for one in (whole, parts[0]))
        assert got == expected
        slopes = [
            one.measure_gradient(6, objective, batch, micro_batch=1, is_checkpointed=True) for one in (whole, parts[0])
        ]
        assert torch.equal(slopes[1].slope_F, slopes[0].slope_F)
        assert slopes[1].loss == slopes[0].loss
    weights = whole.weights()
    exported = parts[-1].weights()
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], weight) for name, weight in weights.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("family", "dtype"), [("opt", "float32"), ("gpt2", "bfloat16"), ("llama", "float32")])
def test_ranks_compute_and_fold_with_few_bits_what_one_process_does(family, dtype, kind):
    whole, *parts = replicas(3, family, True, dtype, kind)
    for one in (whole, *parts):
        one.apply(some_updates(12, steps=6, scalar_max=1 << 20))
        one.open_epoch(2)
        one.apply(some_updates(2, steps=1))  # late, for an epoch that was folded
    error = 1e-5 if dtype == "float32" else 0.03
    for labelled in (True, False):
        batch = tiny_batch(labelled=labelled)
        expected, got = (one.measure_gradient(6, objective_of(batch), batch) for one in (whole, parts[2]))
        assert float((got.slope_F - expected.slope_F).norm()) < error * float(expected.slope_F.norm())
        assert got.loss == pytest.approx(expected.loss, abs=error)
    for slot, own in zip(whole.slots, parts[1].slots, strict=True):
        if slot.slot.is_matrix:
            rows = torch.arange(slot.slot.shape[0])
            assert torch.equal(own.stored.lookup(rows), slot.stored.lookup(rows))


@pytest.mark.parametrize("kind", [None, *KINDS])
@pytest.mark.parametrize("family", MIXTURES)
def test_ranks_share_the_experts_of_a_mixture(family, kind):
    batch, ranks = tiny_batch(labelled=False), []
    made = []
    for one in (None, *(Neighbours(number, 3, ranks) for number in range(3))):
        base = prepare_model(family_model(family), tiny_tokenizer(), dtype="bfloat16")
        made.append(Replica(base, tiny_settings(refresh_period=3), quantize=kind, ranks=one or ALONE))
    whole, *parts = made
    for one in made:
        one.apply(some_updates(12, steps=6, scalar_max=1 << 20))
        one.open_epoch(2)
    expected, got = (one.measure_gradient(6, TEXTS, batch) for one in (whole, parts[1]))
    # See test_offloaded.py.
    error = 0.03 if kind is not None or family == "Qwen2-MoE" else 0
    assert float((got.slope_F - expected.slope_F).norm()) <= error * float(expected.slope_F.norm())
    assert got.loss == pytest.approx(expected.loss, abs=error)
    assert not any(one.dim() == 3 for one in parts[0].model.parameters())
    if kind is None:
        exported = parts[2].weights()
        assert all(torch.equal(exported[name], weight) for name, weight in whole.weights().items())


def test_ranks_with_few_bits_send_few_bytes():
    _, part, _ = replicas(2, "llama", False, "float32", "int8")
    for slot in part.slots:
        if slot.slot.is_matrix:
            rows, width = slot.slot.shape
            block = slot.stored.block(0, is_master=False)
            assert block.nbytes == -(-rows // 2) * (width + 4)


def test_each_rank_holds_its_share():
    whole, *parts = replicas(3, "llama", False, "bfloat16")
    matrices = sum(parameter.numel() for parameter in whole.model.parameters() if parameter.dim() == 2)
    for one in parts:
        held = [slot.stored for slot in one.slots if slot.stored is not None]
        assert sum(matrix.block(0, is_master=False).numel() for matrix in held) == pytest.approx(matrices / 3, rel=0.1)
        assert not any(parameter.dim() == 2 for parameter in one.model.parameters())
        assert not any(name.endswith("proj.weight") for name in one.base.master or {})


@pytest.mark.parametrize("family", ["opt", "gpt2"])
def test_a_large_matrix_is_gathered_a_part_at_a_time(monkeypatch, family):
    monkeypatch.setattr(fetched, "PART_ELEMENTS_MAX", 16 * 5)
    whole, *parts = replicas(2, family, True, "float32")
    batch = tiny_batch(labelled=False)
    objective = objective_of(batch)
    slopes = [one.measure_gradient(0, objective, batch) for one in (whole, parts[1])]
    torch.testing.assert_close(slopes[1].slope_F, slopes[0].slope_F, rtol=1e-4, atol=1e-6)
    assert slopes[1].loss == pytest.approx(slopes[0].loss)
    exported = parts[1].weights()
    assert all(torch.equal(exported[name], weight) for name, weight in whole.weights().items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "tied"), [("opt", True), ("gemma3", True), ("llama", False)])
def test_a_rank_puts_no_more_than_its_part_of_a_matrix_on_its_device(family, tied, dtype):
    """On a device that is not there."""
    settings, batch, ranks = tiny_settings(refresh_period=3), tiny_batch(), []

    def base(**where) -> BaseModel:
        return prepare_model(tiny_model(family, tied=tied), tiny_tokenizer(), device="cuda:1", dtype=dtype, **where)

    with elsewhere():
        whole, parts = Replica(base(), settings), []
        for number in range(2):
            loaded = base(room=0)
            assert {one.device.type for one in loaded.model.parameters()} == {"cpu"}
            parts.append(Replica(loaded, settings, ranks=Neighbours(number, 2, ranks, "cuda:1")))
        for part in parts:
            assert {str(one.device) for one in part.model.parameters()} == {"cuda:1"}
            assert not any(one.dim() == 2 for one in part.model.parameters())
            assert {str(slot.stored.block(0, is_master=False).device) for slot in part.slots if slot.stored} == {
                "cuda:1"
            }
        for one in (whole, *parts):
            one.apply(some_updates(12, steps=6, scalar_max=1 << 20))
            one.open_epoch(2)
        expected, got = (one.measure_gradient(6, objective_of(batch), batch) for one in (whole, parts[1]))
        error = 1e-4 if dtype == "float32" else 0.05  # ranks compute in other pieces
        torch.testing.assert_close(got.slope_F, expected.slope_F, rtol=error, atol=error)
        assert got.loss == pytest.approx(expected.loss, abs=error)
        weights, exported = whole.weights(), parts[0].weights()
    assert all(torch.equal(exported[name], weight) for name, weight in weights.items())
