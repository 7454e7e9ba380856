"""From updates to the coefficients of their epoch: a sum, or what an optimiser makes of the sums of its steps.

`PlainSum`, where windows do not wait for everyone: C, with the increments `A = -(learning_rate / clients) C 2^-unit`.
Any update may come at any time.

`StepSum`, if what is told is bounded by what the others told (`clip`): C as well, but what an update adds depends on
the other updates of its step (`reputation`).

`Stepwise`, in strict windows: C, or A itself as integers if there is an optimiser, as a pure function of what was told
of all steps. If an update comes late for a step, the later steps are computed again. Updates are kept while something
may come for their step; once all clients have told of it, nothing can. All but the newest epochs are put aside in a
file, because a journal may give everything of one origin before it gives the next one. An epoch that was adopted begins
with what was adopted: its steps are over. `control` may take an epoch back to where it was best, and halve the rate of
all later steps, or of all steps; or take whole epochs back; or end the run.

Shapes: F coefficients, E numbers of an epoch (subspace.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import Base64Bytes, TypeAdapter
from torch import Tensor

from seedflood.config import RunSettings
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.messages import SCALAR_UNIT_BITS, Told, Update
from seedflood.protocol.seedflood.payload import Pairs, Telling
from seedflood.training.seedflood.control import (
    BLOCK_MIN,
    PROMISE_MAX,
    REWARD_PROMISE_MAX,
    SIGNIFICANT,
    SIGNIFICANT_ALONE,
    Control,
    Past,
    block_length,
    halvings_for,
    voters_of,
)
from seedflood.training.seedflood.optimiser import INCREMENT_UNIT_BITS, Adam, Integers, State, begin
from seedflood.training.seedflood.reputation import Reputations
from seedflood.training.seedflood.schedule import Factor, factor_of
from seedflood.training.seedflood.shelf import Shelf, Shelved
from seedflood.training.seedflood.subspace import Subspace
from seedflood.training.seedflood.telling import Reader

KEPT_EPOCHS = 8
"""How many epochs have their updates in memory. In strict windows only a journal gives anything for older ones."""

KEPT_OPEN = 2
"""The same in other windows."""


def make_aggregation(
    run: RunSettings, subspace: Subspace, telling: Telling, default_rate: float, folder: Path | None
) -> "Aggregation":
    """default_rate: the learning rate of a run that names none. folder: where old epochs are put aside."""
    settings = run.seedflood
    learning_rate = settings.learning_rate or default_rate
    is_outvoting = settings.clip == "others"
    reader, factor = Reader(telling, subspace, outvote=is_outvoting), factor_of(run)
    unit_bits = SCALAR_UNIT_BITS if isinstance(telling, Pairs) else telling.unit_bits
    if settings.window != "strict":
        unit = -learning_rate / run.clients * 2.0**-unit_bits
        if is_outvoting:
            return StepSum(reader, factor, unit, Shelf(folder), run)
        return PlainSum(reader, factor, unit)
    told = run.clients / settings.turn_rounds(run.clients)
    optimiser, unit = None, -learning_rate / told * 2.0**-unit_bits
    if settings.has_adam:
        optimiser = Adam(learning_rate, 2.0**-unit_bits / told, subspace.lengths())
        unit = 2.0**-INCREMENT_UNIT_BITS
    return Stepwise(unit, reader, factor, optimiser, Shelf(folder), run, learning_rate / default_rate)


class PlainSum:
    """The sum of the updates: exact, and the same in any order. Each integer is multiplied with the factor of its step
    (`schedule`). unit: increments are coefficients times this."""

    def __init__(self, reader: Reader, factor: Factor, unit: float) -> None:
        self.unit = unit
        self._reader = reader
        self._factor = factor

    def changed(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        sum_E = held_E.clone()
        self._reader.add(sum_E, epoch, updates, [self._factor(update.step) for update in updates])
        return sum_E

    note = preview = adopted = changed
    """Nothing is remembered, so it does not matter what the numbers without these updates stand for."""

    def reputations(self, _epoch: int) -> Reputations:
        return Reputations()


_Heard = Mapping[OriginId, tuple[int, int] | Base64Bytes]
"""What the origins told of one step."""


class StepSum:
    """The sum of steps, each read as a function of the set of its updates: sizes are bounded by their median. The same
    in any order. unit: increments are coefficients times this.

    A sum that was adopted stands for the whole epoch: what comes beside it does not count. Nothing bounds what one host
    tells alone.
    """

    def __init__(self, reader: Reader, factor: Factor, unit: float, shelf: Shelf, run: RunSettings) -> None:
        self.unit = unit
        self._reader = reader
        self._factor = factor
        self._shelf = shelf
        self._clients = run.clients
        self._steps_of_epoch = run.seedflood.refresh_period
        self._told: dict[int, dict[int, _Heard]] = {}
        """By epoch and step: what is in the numbers, or noted."""
        self._places: dict[int, Shelved] = {}
        """The epochs that were put aside, and where they are."""
        self._noted: set[int] = set()
        """The epochs of which the numbers lack something that was told."""
        self._final: set[int] = set()
        """The epochs that stay as they are: a sum was adopted, or all clients have told of all steps."""

    def note(self, epoch: int, held_E: Tensor, updates: Sequence[Update], _past: Past) -> Tensor:
        """Like `changed`, but the numbers may be those without these updates, until `changed` is called."""
        if epoch not in self._final:
            self._told[epoch] = _with(self._told_of(epoch), updates)
            self._noted.add(epoch)
        return held_E

    def changed(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """The numbers of an epoch with these updates. held_E: without them, as they were returned last."""
        if epoch in self._final:
            return held_E
        sum_E = self.preview(epoch, held_E, updates, past)
        told = self._told[epoch] = _with(self._told_of(epoch), updates)
        self._noted.discard(epoch)
        if len(told) == self._steps_of_epoch and all(len(heard) >= self._clients for heard in told.values()):
            self._settle(epoch)
        return sum_E

    def preview(self, epoch: int, held_E: Tensor, updates: Sequence[Update], _past: Past) -> Tensor:
        """What `changed` would return, but nothing is changed."""
        if epoch in self._final:
            return held_E
        told = self._told_of(epoch)
        if epoch in self._noted:  # the numbers are behind what was told, so all steps are read
            sum_E, before = self._reader.subspace.zeros(), {}
            after = _with(told, updates)
        else:
            sum_E, before = held_E.clone(), told
            after = {step: {**told.get(step, {}), **news} for step, news in _with({}, updates).items()}
        for step, heard in after.items():
            sum_E -= self._read(epoch, step, before.get(step, {}))
            sum_E += self._read(epoch, step, heard)
        return sum_E

    def adopted(self, epoch: int, held_E: Tensor, _updates: Sequence[Update], _past: Past) -> Tensor:
        """The numbers of an epoch when a sum takes the place of what it had."""
        self._settle(epoch)
        return held_E

    def reputations(self, _epoch: int) -> Reputations:
        return Reputations()

    def _read(self, epoch: int, step: int, heard: _Heard) -> Tensor:
        sum_E = self._reader.subspace.zeros()
        updates = [Update(origin, step, told) for origin, told in heard.items()]
        self._reader.add_step(sum_E, epoch, updates, Reputations(), self._factor(step))
        return sum_E

    def _settle(self, epoch: int) -> None:
        self._told.pop(epoch, None)
        self._places.pop(epoch, None)
        self._noted.discard(epoch)
        self._final.add(epoch)

    def _told_of(self, epoch: int) -> dict[int, _Heard]:
        """What was told of an epoch. Only the newest ones are in memory."""
        if epoch not in self._told:
            place = self._places.pop(epoch, None)
            self._told[epoch] = {} if place is None else _FILED_STEPS.validate_json(self._shelf.read(place))
            for oldest in sorted(self._told)[:-KEPT_OPEN]:
                if oldest != epoch:
                    self._put_aside(oldest)
        return self._told[epoch]

    def _put_aside(self, epoch: int) -> None:
        """It stays in memory if there is no space for it."""
        place = self._shelf.put(_FILED_STEPS.dump_json(self._told[epoch]))
        if place is not None:
            self._places[epoch] = place
            del self._told[epoch]


class _Point(NamedTuple):
    """Where an epoch is after some steps."""

    state: State
    control: Control
    past: Past
    is_over: bool = False
    """Then `past` is what this epoch leaves."""
    reputations: Reputations = Reputations()

    @property
    def is_void(self) -> bool:
        """Was the run over before this epoch?"""
        return self.past.is_last and not self.is_over

    def numbers(self, size: int) -> Tensor:
        """(E,): what stands for an epoch. size: E."""
        sum_E = torch.zeros(size, dtype=torch.int64)
        if self.is_void:
            return sum_E
        left = self.past if self.is_over else replace(self.past, halvings=self.control.halvings, is_back=False)
        listed, first = left.listed(), len(self.state.increment_F)
        sum_E[:first] = torch.from_numpy(self.state.increment_F)
        sum_E[first : first + len(listed)] = torch.tensor(listed[: size - first])
        return sum_E


@dataclass(slots=True)
class _Steps:
    """One epoch. past: what was left to it; None if it began with a sum. settled: after all steps below
    `settled_before`, for which nothing more can come.

    told: of later steps, as it came. latest: after all of them; None if it has to be computed.
    """

    past: Past | None
    settled: _Point
    settled_before: int
    latest: _Point | None = None
    told: dict[int, _Heard] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Stepwise:
    """Coefficients by steps, each by an optimiser or, without one, as it was told. unit: see `PlainSum`. defaults:
    how many times its default the learning rate is."""

    unit: float
    _reader: Reader
    _factor: Factor
    _optimiser: Adam | None
    _shelf: Shelf
    run: InitVar[RunSettings]
    _defaults: float = 1.0
    _epochs: dict[int, _Steps] = field(default_factory=dict)
    _places: dict[int, Shelved] = field(default_factory=dict)
    """The epochs that were put aside, and where they are."""
    _final: set[int] = field(default_factory=lambda: {-1})
    """The epochs for which nothing more can come, so that what they leave is known."""

    def __post_init__(self, run: RunSettings) -> None:
        self._size = self._reader.subspace.size
        self._refresh_period = run.seedflood.refresh_period
        self._stop_epochs = run.seedflood.stop_epochs
        self._steps_of_run = run.steps
        self._voters = voters_of(run.clients)
        self._promise_max = REWARD_PROMISE_MAX if run.objective.task == "reward" else PROMISE_MAX
        turn_rounds = run.seedflood.turn_rounds(run.clients)
        self._turn = turn_rounds * run.seedflood.local_steps if turn_rounds > 1 else 1
        self._told_in_turn = run.clients * (run.seedflood.local_steps if turn_rounds > 1 else 1)
        self._least = BLOCK_MIN * turn_rounds
        self._block = max(self._least, block_length(self._refresh_period, run.steps))

    def note(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """Like `changed`, but the numbers may be those without these updates, until `changed` is called."""
        steps = self._steps(epoch, held_E, past)
        steps.told = _with(steps.told, updates)
        return held_E

    def changed(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """The numbers of an epoch with these updates. held_E: without them, as they were returned last. past: what the
        epochs before it leave."""
        steps = self._steps(epoch, held_E, past)
        newest = max(steps.told, default=steps.settled_before - 1)
        steps.told = _with(steps.told, updates)
        if steps.latest is not None and min((update.step for update in updates), default=newest) > newest:
            news = {step: told for step, told in steps.told.items() if step > newest}
            latest = self._go(steps.latest, epoch, news)
        else:
            latest = self._go(steps.settled, epoch, steps.told)
        steps.latest = latest
        self._settle(epoch, steps, latest)
        return latest.numbers(len(held_E))

    def preview(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """What `changed` would return, but nothing is changed."""
        steps = self._steps(epoch, held_E, past)
        return self._go(steps.settled, epoch, _with(steps.told, updates)).numbers(len(held_E))

    def adopted(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """The numbers of an epoch when a sum (held_E) and these updates take the place of what it had."""
        self._epochs.pop(epoch, None)
        self._places.pop(epoch, None)
        self._final.add(epoch)
        return self.changed(epoch, held_E, updates, past)

    def reputations(self, epoch: int) -> Reputations:
        """Of the hosts, after all that was told of an epoch in memory."""
        steps = self._epochs.get(epoch)
        return steps.latest.reputations if steps is not None and steps.latest is not None else Reputations()

    def _steps(self, epoch: int, held_E: Tensor, past: Past) -> _Steps:
        """The steps of an epoch. It begins again if it began with another past, and all of its updates are here."""
        if epoch not in self._epochs:
            if (place := self._places.pop(epoch, None)) is not None:
                self._epochs[epoch] = _FILED.validate_json(self._shelf.read(place))
            else:
                self._epochs[epoch] = self._begin(epoch, held_E, past)
            for oldest in sorted(self._epochs)[:-KEPT_EPOCHS]:
                if oldest != epoch:
                    self._put_aside(oldest)
        steps = self._epochs[epoch]
        is_all_here = steps.settled_before == epoch * self._refresh_period
        if steps.past not in (past, None) and is_all_here:
            again = self._begin(epoch, self._reader.subspace.zeros(), past)
            again.told, again.latest = steps.told, self._go(again.settled, epoch, steps.told)
            self._epochs[epoch] = again
        return self._epochs[epoch]

    def _begin(self, epoch: int, held_E: Tensor, past: Past) -> _Steps:
        """held_E: a sum that has taken the place of the steps, or zeros."""
        held_F, is_sum = held_E[: self._size].numpy(), bool(held_E.any())
        before = Past.read(held_E[self._size :].tolist()) if is_sum else past
        point = _Point(begin(held_F), Control(held_F, before.halvings, voters=self._voters), before, is_sum)
        return _Steps(None if is_sum else past, point, epoch * self._refresh_period, point)

    def _put_aside(self, epoch: int) -> None:
        """Puts an epoch aside, or drops it if nothing more can come for it. It stays in memory if there is no space for
        it."""
        steps = self._epochs[epoch]
        if steps.settled_before < (epoch + 1) * self._refresh_period:
            place = self._shelf.put(_FILED.dump_json(steps, exclude={"latest"}))
            if place is None:
                return
            self._places[epoch] = place
        del self._epochs[epoch]

    def _go(self, point: _Point, epoch: int, told: Mapping[int, _Heard]) -> _Point:
        for step in sorted(told):
            point = self._take(point, epoch, step, told[step])
        return point

    def _take(self, point: _Point, epoch: int, step: int, told: _Heard) -> _Point:
        """One step: what was lost before it, the step itself, and what control makes of both."""
        if point.is_void:
            return point
        state, control, past, is_over, reputations = point
        updates = [Update(origin, step, one) for origin, one in told.items()]
        control = control.hear({update.origin: update.loss for update in updates}, state.increment_F)
        factor = max(1, self._factor(step) >> control.halvings)
        moved, following = self._move(state, epoch, updates, factor, reputations)
        if step < self._turn:
            control = control.promise(self._promised(updates, moved.increment_F - state.increment_F))
        is_turn_over = (step + 1) % self._turn == 0
        if is_turn_over and (halvings := control.halvings_before(self._defaults)):
            slower = _Point(begin(control.best_F), control.back(halvings), past, is_over, reputations)
            # A turn of one step is taken again; the steps of a longer one were measured at other weights, and are lost.
            return slower if step else self._go(slower, epoch, {step: told})
        control, back_F = control.judge(self._block, self._alone(step), self._least, is_turn_over=is_turn_over)
        if not is_over and self._alone(step) is not None:
            past, is_over = past.after(epoch, control, self._stop_epochs), True
        return _Point(moved if back_F is None else begin(back_F), control, past, is_over, following)

    def _promised(self, updates: Sequence[Update], step_F: Integers) -> dict[OriginId, int]:
        """How often the rate has to be halved before this step, for each origin."""
        return {
            update.origin: halvings_for(
                self._reader.promise(update, step_F) * self.unit, update.loss, self._promise_max
            )
            for update in updates
        }

    def _alone(self, step: int) -> int | None:
        """How clearly the last block of an epoch or of the run must be worse; None if another one follows."""
        if step + 1 == self._steps_of_run:
            return SIGNIFICANT
        return SIGNIFICANT_ALONE if (step + 1) % self._refresh_period == 0 else None

    def _move(
        self, state: State, epoch: int, updates: Sequence[Update], factor: int, reputations: Reputations
    ) -> tuple[State, Reputations]:
        """The state and the reputations after a step. factor: of the learning rate, in units of 2^-16."""
        sum_E = self._reader.subspace.zeros()
        sum_F: Integers = sum_E[: self._size].numpy()
        if self._optimiser is None:
            following = self._reader.add_step(sum_E, epoch, updates, reputations, factor)
            return replace(state, increment_F=state.increment_F + sum_F), following
        following = self._reader.add_step(sum_E, epoch, updates, reputations)
        return self._optimiser.step(state, sum_F, factor) if sum_F.any() else state, following

    def _settle(self, epoch: int, steps: _Steps, latest: _Point) -> None:
        """Closes the turns, or without them the steps, about which all clients have told, up to the first gap; none
        while the epoch's past may change."""
        if epoch - 1 not in self._final:
            return
        over: dict[int, _Heard] = {}
        turn = range(steps.settled_before, steps.settled_before + self._turn)
        while sum(len(steps.told.get(step, ())) for step in turn) == self._told_in_turn:
            over |= {step: steps.told.pop(step) for step in sorted(steps.told) if step < turn.stop}
            steps.settled_before = turn.stop
            turn = range(turn.stop, turn.stop + self._turn)
        if over:
            steps.settled = self._go(steps.settled, epoch, over) if steps.told else latest
        if steps.settled_before == (epoch + 1) * self._refresh_period:
            self._final.add(epoch)


Aggregation = PlainSum | StepSum | Stepwise
"""Computes the coefficients of epochs."""


def _with(told: Mapping[int, _Heard], updates: Iterable[Update]) -> dict[int, _Heard]:
    """The same with more updates."""
    added: dict[int, dict[OriginId, Told]] = defaultdict(dict)
    for origin, step, one in updates:
        added[step][origin] = one
    return {**told, **{step: {**told.get(step, {}), **more} for step, more in added.items()}}


_FILED, _FILED_STEPS = TypeAdapter(_Steps), TypeAdapter(dict[int, _Heard])
"""To JSON for a file of this process, and back."""
