"""From updates to the coefficients of their epoch: a plain sum, or what an optimiser makes of the sums of its steps.

`PlainSum`: C, with the increments `A = -(learning_rate / clients) C 2^-unit`. Any update may come at any time.

`Stepwise`: A itself as integers, a pure function of the sums of all steps. An update that comes late for a step is
added to that step's sum, and the later steps are computed again. Sums are kept while something may come for them; once
all clients have told of a step, nothing can. The sums of all but the newest epochs are put aside in a file, because a
journal may give everything of one origin before it gives the next one. An epoch that was adopted begins with what was
adopted: its steps are over.

Shapes: F coefficients (subspace.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from seedflood.config import RunSettings
from seedflood.errors import JournalError
from seedflood.protocol.seedflood.messages import SCALAR_UNIT_BITS, Update
from seedflood.protocol.seedflood.payload import Pairs, Telling
from seedflood.training.seedflood.optimiser import INCREMENT_UNIT_BITS, Integers, Optimiser, State, begin
from seedflood.training.seedflood.schedule import Schedule
from seedflood.training.seedflood.shelf import Place, Shelf
from seedflood.training.seedflood.subspace import Subspace
from seedflood.training.seedflood.telling import Reader

KEPT_EPOCHS = 8
"""How many epochs have their sums in memory. In strict windows only a journal gives anything for older ones."""


class Aggregation(Protocol):
    """Computes the coefficients of epochs. unit: increments are coefficients times this."""

    unit: float

    def changed(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        """The coefficients of an epoch with these updates. held_F: the coefficients without them, as they were returned
        last."""
        ...

    def preview(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        """What `changed` would return, but nothing is changed."""
        ...

    def adopted(self, epoch: int, coefficients_F: Tensor, updates: Sequence[Update]) -> Tensor:
        """The coefficients of an epoch when a sum and these updates take the place of what it had."""
        ...


def make_aggregation(
    run: RunSettings, subspace: Subspace, telling: Telling, learning_rate: float, folder: Path | None
) -> Aggregation:
    """learning_rate: as the run has it, or its default. folder: where old epochs are put aside."""
    settings = run.seedflood
    reader, schedule = Reader(telling, subspace), Schedule.of(run)
    unit_bits = SCALAR_UNIT_BITS if isinstance(telling, Pairs) else telling.unit_bits
    if settings.optimizer == "sgd":
        return PlainSum(reader, schedule, -learning_rate / run.clients * 2.0**-unit_bits)
    unit = 2.0**-unit_bits / run.clients
    optimiser = Optimiser(settings.optimizer, learning_rate, settings.weight_decay, unit, subspace.lengths())
    return Stepwise(
        reader,
        schedule,
        optimiser,
        Shelf(folder),
        clients=run.clients,
        refresh_period=settings.refresh_period,
    )


class PlainSum:
    """The sum of the updates: exact, and the same in any order. Each integer is multiplied with the factor of its step
    (`schedule`)."""

    def __init__(self, reader: Reader, schedule: Schedule, unit: float) -> None:
        self.unit = unit
        self._reader = reader
        self._schedule = schedule

    def changed(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        return self.preview(epoch, held_F, updates)

    def preview(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        sum_F = held_F.clone()
        self._reader.add(sum_F, epoch, updates, [self._schedule.factor(update.step) for update in updates])
        return sum_F

    def adopted(self, epoch: int, coefficients_F: Tensor, updates: Sequence[Update]) -> Tensor:
        return self.preview(epoch, coefficients_F, updates)


@dataclass(slots=True)
class _Steps:
    """One epoch. settled: the state after all steps below `settled_before`, for which nothing more can come.

    sums, told: of later steps, the sum of what was told and how many updates that were. latest: the state after all of
    them.
    """

    settled: State
    settled_before: int
    latest: State
    sums: dict[int, Tensor] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)


class Stepwise:
    """Coefficients by an optimiser that goes by steps."""

    unit = 2.0**-INCREMENT_UNIT_BITS

    def __init__(
        self,
        reader: Reader,
        schedule: Schedule,
        optimiser: Optimiser,
        shelf: Shelf,
        *,
        clients: int,
        refresh_period: int,
    ) -> None:
        self._reader = reader
        self._schedule = schedule
        self._optimiser = optimiser
        self._clients = clients
        self._refresh_period = refresh_period
        self._shelf = shelf
        self._epochs: dict[int, _Steps] = {}
        self._places: dict[int, Place] = {}
        """The epochs that were put aside, and where they are."""

    def changed(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        steps = self._steps(epoch, held_F)
        newest = max(steps.sums, default=steps.settled_before - 1)
        sums = self._sums(epoch, updates)
        steps.sums = _added(steps.sums, sums)
        for update in updates:
            steps.told[update.step] = steps.told.get(update.step, 0) + 1
        is_in_turn = min(sums, default=newest) > newest
        steps.latest = self._go(steps.latest, sums) if is_in_turn else self._go(steps.settled, steps.sums)
        self._settle(steps)
        return torch.from_numpy(steps.latest.increment_F)

    def preview(self, epoch: int, held_F: Tensor, updates: Sequence[Update]) -> Tensor:
        steps = self._steps(epoch, held_F)
        sums = _added(steps.sums, self._sums(epoch, updates))
        return torch.from_numpy(self._go(steps.settled, sums).increment_F)

    def adopted(self, epoch: int, coefficients_F: Tensor, updates: Sequence[Update]) -> Tensor:
        self._epochs.pop(epoch, None)
        self._places.pop(epoch, None)
        return self.changed(epoch, coefficients_F, updates)

    def _steps(self, epoch: int, held_F: Tensor) -> _Steps:
        if epoch not in self._epochs:
            if (place := self._places.pop(epoch, None)) is not None:
                self._epochs[epoch] = _unpacked(self._shelf, place)
            else:
                state = begin(held_F.numpy())
                self._epochs[epoch] = _Steps(state, epoch * self._refresh_period, state)
            for oldest in sorted(self._epochs)[:-KEPT_EPOCHS]:
                if oldest != epoch:
                    self._put_aside(oldest)
        return self._epochs[epoch]

    def _put_aside(self, epoch: int) -> None:
        """Puts an epoch aside, or drops it if nothing more can come for it. It stays in memory if there is no space for
        it."""
        steps = self._epochs[epoch]
        if steps.settled_before < (epoch + 1) * self._refresh_period:
            place = self._shelf.put(_packed(steps))
            if place is None:
                return
            self._places[epoch] = place
        del self._epochs[epoch]

    def _sums(self, epoch: int, updates: Iterable[Update]) -> dict[int, Tensor]:
        by_step: dict[int, list[Update]] = defaultdict(list)
        for update in updates:
            by_step[update.step].append(update)
        sums: dict[int, Tensor] = {}
        for step, ours in by_step.items():
            sums[step] = self._reader.zeros()
            self._reader.add(sums[step], epoch, ours)
        return sums

    def _go(self, state: State, sums: dict[int, Tensor]) -> State:
        for step in sorted(sums):
            sum_F: Integers = sums[step].numpy()
            if sum_F.any():
                state = self._optimiser.step(state, sum_F, self._schedule.factor(step))
        return state

    def _settle(self, steps: _Steps) -> None:
        """Closes the steps about which all clients have told, up to the first gap."""
        over: dict[int, Tensor] = {}
        while steps.told.get(steps.settled_before) == self._clients:
            over[steps.settled_before] = steps.sums.pop(steps.settled_before)
            del steps.told[steps.settled_before]
            steps.settled_before += 1
        if over:
            steps.settled = self._go(steps.settled, over) if steps.sums else steps.latest


def _added(sums: dict[int, Tensor], more: dict[int, Tensor]) -> dict[int, Tensor]:
    """The sums per step of both."""
    added = sums | more
    for step in sums.keys() & more.keys():
        added[step] = sums[step] + more[step]
    return added


def _packed(steps: _Steps) -> bytes:
    """Bytes for a file of this process: arrays, by the names of the fields."""
    kept = sorted(steps.sums)
    arrays = {
        "numbers": numpy.array([steps.settled_before, *kept, *(steps.told.get(step, 0) for step in kept)]),
        "sums": numpy.array([steps.sums[step].numpy() for step in kept]),
    }
    for name, state in (("settled", steps.settled), ("latest", steps.latest)):
        arrays[f"{name}.increment"] = state.increment_F
        arrays[f"{name}.moments"] = numpy.stack([state.first_F, state.second_F])
        arrays[f"{name}.decays"] = numpy.array([state.decay_1, state.decay_2])
    return save(arrays)


def _unpacked(shelf: Shelf, place: Place) -> _Steps:
    try:
        arrays = load(shelf.read(place))
    except (OSError, SafetensorError) as error:
        raise JournalError(
            f"cannot read back the sums per step that were put aside on the disk: {error}; check that the disk is "
            "healthy and start the node again: its journal has all of it"
        ) from error
    settled, latest = (
        State(arrays[f"{name}.increment"], *arrays[f"{name}.moments"], *map(float, arrays[f"{name}.decays"]))
        for name in ("settled", "latest")
    )
    before, *numbers = map(int, arrays["numbers"])
    kept, told = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    sums = {step: torch.from_numpy(sum_F) for step, sum_F in zip(kept, arrays["sums"], strict=True)}
    return _Steps(settled, before, latest, sums, dict(zip(kept, told, strict=True)))
