import numpy
import pytest
import torch
from dense_gossip import exchange, weights_of
from packed import trainer_of

from seedflood.storage.snapshots import Snapshots
from seedflood.training.gasloc.checkpoint import is_within
from seedflood.training.gasloc.outer import PLAIN, OuterSettings

FULL = OuterSettings(eta=0.8, gamma=0.5, encoding="uint8")


def rounds(trainers, count, steps=3):
    for _ in range(count):
        for trainer in trainers:
            trainer.worker.take_steps(steps)
        exchange([trainer.outer for trainer in trainers], weights_of("complete", len(trainers)))


def copied(arrays):
    return {name: numpy.array(array) for name, array in arrays.items()}


def state(trainer):
    arrays, facts = trainer.snapshot()
    return {name: array.tobytes() for name, array in arrays.items()}, facts


@pytest.mark.parametrize("optimiser", ["AdamW", "Adam", "SGD"])
@pytest.mark.parametrize("outer", [PLAIN, FULL])
def test_a_restored_worker_goes_on_bit_by_bit(tmp_path, outer, optimiser):
    """Through files, in the middle of a round, into trainers that have trained something else meanwhile."""
    options = {"momentum": 0.9} if optimiser == "SGD" else {}
    ours = [trainer_of(k, outer, optimiser=optimiser, options=options) for k in (1, 2)]
    rounds(ours, 2)
    for trainer in ours:
        trainer.worker.take_steps(2)
    files = [Snapshots(tmp_path / str(k), keep=1) for k in (1, 2)]
    for trainer, snapshots in zip(ours, files, strict=True):
        snapshots.save(trainer.worker.step, *trainer.snapshot())
    others = [trainer_of(k, outer, optimiser=optimiser, options=options) for k in (1, 2)]
    others[0].worker.take_steps(1)
    for trainer, snapshots in zip(others, files, strict=True):
        saved = snapshots.load_latest(trainer.is_restorable)
        assert saved is not None
        trainer.restore(saved.arrays, saved.facts)
        assert (trainer.worker.step, trainer.outer.round) == (8, 2)
    for trainers in (ours, others):
        rounds(trainers, 2, steps=1)
    for before, after in zip(ours, others, strict=True):
        assert state(after) == state(before)


def test_a_checkpoint_holds_whole_rounds():
    trainer = trainer_of(1)
    trainer.worker.take_steps(1)
    trainer.outer.propose()
    with pytest.raises(AssertionError, match="whole rounds"):
        trainer.snapshot()


def test_a_worker_takes_what_another_origin_has_saved():
    """Late join: parameters and the optimiser's state of a neighbour, and rows of its own from there on."""
    donor, joiner = trainer_of(1, FULL), trainer_of(2, FULL)
    donor.worker.take_steps(4)
    arrays, facts = donor.snapshot()
    assert joiner.is_restorable(facts)
    joiner.restore(copied(arrays), facts)
    assert state(joiner) == state(donor)
    assert joiner.worker.take_steps(1).loss != donor.worker.take_steps(1).loss


def test_another_base_model_is_told():
    assert not trainer_of(1, seed=1).is_restorable(trainer_of(1).snapshot()[1])


@pytest.mark.parametrize("other", [lambda: trainer_of(1, optimiser="SGD"), lambda: trainer_of(1, FULL)])
def test_a_checkpoint_of_something_else_is_refused(other):
    trainer = trainer_of(1)
    before = state(trainer)
    arrays, facts = other().snapshot()
    assert not trainer.is_restorable(facts)
    with pytest.raises(ValueError, match="another model, optimiser or outer step"):
        trainer.restore(arrays, facts)
    assert state(trainer) == before


def shortened(array):
    return array[:-1]


def widened(array):
    return array.astype(numpy.float64)


@pytest.mark.parametrize(
    ("damage", "change"),
    [(name, change) for name in ("values", "previous", "residual") for change in (shortened, widened)],
)
def test_arrays_that_do_not_fit_change_nothing(damage, change):
    donor, trainer = trainer_of(1, FULL), trainer_of(1, FULL)
    donor.worker.take_steps(1)
    arrays, facts = donor.snapshot()
    before = state(trainer)
    with pytest.raises(ValueError, match="form that is needed"):
        trainer.restore(arrays | {damage: change(arrays[damage])}, facts)
    assert state(trainer) == before


@pytest.mark.parametrize("optimiser", ["AdamW", "Adam", "SGD"])
def test_the_state_of_every_optimiser_is_taken_after_a_step_and_before_any(optimiser):
    options = {"momentum": 0.9} if optimiser == "SGD" else {}
    donor, trainer = (trainer_of(1, optimiser=optimiser, options=options) for _ in range(2))
    for steps in (0, 1):
        donor.worker.take_steps(steps) if steps else None
        arrays, facts = donor.snapshot()
        trainer.restore(copied(arrays), facts)
        assert state(trainer) == state(donor)


@pytest.mark.parametrize("name", ["values", "anchor", "previous", "residual", "optimiser.0.exp_avg"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_seen_wherever_they_are(name, wrong):
    trainer = trainer_of(1, FULL)
    trainer.worker.take_steps(1)
    trainer.outer.propose()
    trainer.outer.mix([])
    arrays = copied(trainer.snapshot()[0])
    assert is_within(arrays, norm_max=1e30)
    value = torch.tensor(wrong, dtype=torch.bfloat16).view(torch.int16).numpy() if name == "residual" else wrong
    arrays[name][3] = value
    assert not is_within(arrays, norm_max=1e30)


def test_saving_copies_nothing_that_is_in_host_memory():
    trainer = trainer_of(1, FULL)
    trainer.worker.take_steps(1)
    arrays, _ = trainer.snapshot()
    trainer.worker.flat.values_F[0] = 42.0
    trainer.outer.previous_F[0] = 43.0
    assert (arrays["values"][0], arrays["previous"][0]) == (42.0, 43.0)


def test_the_residual_is_kept_to_the_bit():
    trainer, again = trainer_of(1, FULL), trainer_of(1, FULL)
    trainer.outer.residual_F.normal_(generator=torch.Generator().manual_seed(1))
    arrays, facts = trainer.snapshot()
    again.restore(copied(arrays), facts)
    assert torch.equal(again.outer.residual_F, trainer.outer.residual_F)


BOUNDED = OuterSettings(encoding="uint8", is_bounded=True)


def test_how_far_a_host_has_come_outlives_a_crash():
    ours = [trainer_of(k, BOUNDED) for k in (1, 2)]
    rounds(ours, 2)
    arrays, facts = ours[0].snapshot()
    again = trainer_of(1, BOUNDED)
    again.restore(copied(arrays), facts)
    assert torch.equal(again.outer.reach.squares_2T, ours[0].outer.reach.squares_2T)
    assert again.outer.reach.squares_2T.all()


def test_a_checkpoint_from_before_there_was_a_reach_is_taken():
    trainer, again = trainer_of(1, BOUNDED), trainer_of(1, BOUNDED)
    rounds([trainer, again], 1)
    arrays, facts = trainer.snapshot()
    arrays = {name: array for name, array in copied(arrays).items() if name != "reach"}
    again.restore(arrays, facts)
    assert not again.outer.reach.squares_2T.any()


def test_a_copy_says_nothing_of_how_far_others_may_pull_us():
    donor, other = trainer_of(1, BOUNDED), trainer_of(2, BOUNDED)
    rounds([donor, other], 2)
    arrays, facts = donor.snapshot()
    arrays = copied(arrays)
    assert arrays["residual"].any()
    arrays["reach"][:] = 1e3
    assert other.adopt(arrays, facts)
    assert not other.outer.reach.squares_2T.any()
    assert not other.outer.residual_F.any()
