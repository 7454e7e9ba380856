"""From updates to the coefficients of their epoch: what an optimiser makes of the sums of its steps, or these sums.

What stands for an epoch is a pure function of what was published of all steps, whenever it came: if an update comes
late, the later steps are computed again (`Stepwise`). In bounded windows an epoch leaves nothing to the next one.

How long updates are kept, and what `control` takes back: docs/explanation/learning.md.

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
from seedflood.protocol.seedflood.bundles import SCALAR_UNIT_BITS, Update, UpdateValue
from seedflood.protocol.seedflood.payload import Compression, Pairs
from seedflood.training.seedflood.compression import UpdateDecoder
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

KEPT_EPOCHS = 2
"""How many epochs have their updates in memory: the open one, and one for which something may come late. Others are put
aside, since a journal may give everything of one origin before it gives the next one."""


def make_aggregation(
    run: RunSettings, subspace: Subspace, compression: Compression, default_rate: float, folder: Path | None
) -> "Stepwise":
    """default_rate: the learning rate of a run that names none. folder: where old epochs are put aside."""
    settings = run.seedflood
    learning_rate = settings.learning_rate or default_rate
    decoder, factor = UpdateDecoder(compression, subspace, outvote=settings.clip == "others"), factor_of(run)
    unit_bits = SCALAR_UNIT_BITS if isinstance(compression, Pairs) else compression.unit_bits
    measuring = run.clients / settings.turn_rounds(run.clients)
    optimiser, unit = None, -learning_rate / measuring * 2.0**-unit_bits
    if settings.estimate == "gradient":
        optimiser = Adam(learning_rate, 2.0**-unit_bits / measuring, subspace.lengths())
        unit = 2.0**-INCREMENT_UNIT_BITS
    return Stepwise(unit, decoder, factor, optimiser, Shelf(folder), run, learning_rate / default_rate)


_StepValues = Mapping[OriginId, tuple[int, int] | Base64Bytes]
"""The values of one step, by origin."""


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

    values: of later steps, as it came. marks: where the epoch was before some of these steps, and after the last one.
    No marks: all of them have to be computed.
    """

    past: Past | None
    settled: _Point
    settled_before: int
    updates: dict[int, _StepValues] = field(default_factory=dict)
    marks: dict[int, _Point] = field(default_factory=dict)

    @property
    def latest(self) -> _Point:
        """After all steps that were computed."""
        return self.mark_before(max(self.marks, default=self.settled_before))[1]

    def mark_before(self, step: int) -> tuple[int, _Point]:
        """The last mark at or before a step, and where that is. Without one all that is published comes after
        `settled`."""
        at = max((mark for mark in self.marks if mark <= step), default=0)
        return at, self.marks.get(at, self.settled)


@dataclass(eq=False, repr=False)
class Stepwise:
    """Coefficients by steps, each by an optimiser or, without one, as it was sent. unit: increments are coefficients
    times this. defaults: how many times its default the learning rate is."""

    unit: float
    _decoder: UpdateDecoder
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
        self._size = self._decoder.subspace.size
        self._is_chained = self._decoder.subspace.numbers > self._size
        """Does an epoch leave something to the next one? Not in bounded windows: hosts may lack different updates of it
        when they vote on the sum of the next one."""
        self._refresh_period = run.seedflood.refresh_period
        self._stop_epochs = run.seedflood.stop_epochs
        self._steps_of_run = run.steps
        self._voters = voters_of(run.clients)
        self._promise_max = REWARD_PROMISE_MAX if run.objective.task == "reward" else PROMISE_MAX
        turn_rounds = run.seedflood.turn_rounds(run.clients)
        self._turn = turn_rounds * run.seedflood.local_steps if turn_rounds > 1 else 1
        self._updates_in_turn = run.clients * (run.seedflood.local_steps if turn_rounds > 1 else 1)
        self._least = BLOCK_MIN * turn_rounds
        self._block = max(self._least, block_length(self._refresh_period, run.steps))

    def note(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """Like `changed`, but the numbers may be those without these updates, until `changed` is called."""
        steps = self._steps(epoch, held_E, past)
        if not self._is_closed(steps):
            steps.updates = _with(steps.updates, updates)
            steps.marks = {}
        return held_E

    def changed(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """The numbers of an epoch with these updates. held_E: without them, as they were returned last. past: what the
        epochs before it leave."""
        steps = self._steps(epoch, held_E, past)
        if self._is_closed(steps):
            return held_E
        steps.updates = _with(steps.updates, updates)
        first = min((update.step for update in updates), default=steps.settled_before)
        latest = self._compute(epoch, steps, first)
        self._settle(epoch, steps)
        return latest.numbers(len(held_E))

    def preview(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """What `changed` would return, but nothing is changed."""
        steps = self._steps(epoch, held_E, past)
        if self._is_closed(steps):
            return held_E
        first = min((update.step for update in updates), default=steps.settled_before)
        at, point = steps.mark_before(first)
        values = _with(steps.updates, updates)
        later = {step: sent for step, sent in values.items() if step >= at}
        return self._go(point, epoch, later).numbers(len(held_E))

    def _compute(self, epoch: int, steps: _Steps, first: int) -> _Point:
        """Where the epoch is after all steps, of which those from `first` on are to be computed."""
        at, point = steps.mark_before(first)
        marks = {step: mark for step, mark in steps.marks.items() if step <= at}
        for step in sorted(step for step in steps.updates if step >= at):
            marks[step] = point
            point = self._take(point, epoch, step, steps.updates[step])
            at = step + 1
        marks[at] = point
        steps.marks = {step: mark for step, mark in marks.items() if _is_kept(at - step, step)}
        return point

    def seal(self, epoch: int) -> None:
        """An epoch stays as it is: the sum of its updates is final."""
        self._epochs.pop(epoch, None)
        self._places.pop(epoch, None)
        self._final.add(epoch)

    def adopted(self, epoch: int, held_E: Tensor, updates: Sequence[Update], past: Past) -> Tensor:
        """The numbers of an epoch when a sum (held_E) and these updates take the place of what it had."""
        self.seal(epoch)
        return self.changed(epoch, held_E, updates, past)

    def reputations(self, epoch: int) -> Reputations:
        """Of the hosts, after all updates of an epoch in memory."""
        steps = self._epochs.get(epoch)
        return Reputations() if steps is None else steps.latest.reputations

    def halvings(self, epoch: int) -> int:
        """How often the rate was halved, after all updates of an epoch in memory."""
        steps = self._epochs.get(epoch)
        return 0 if steps is None else steps.latest.control.halvings

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
            again = self._begin(epoch, self._decoder.subspace.zeros(), past)
            again.updates = steps.updates
            self._epochs[epoch] = again
        return self._epochs[epoch]

    def _begin(self, epoch: int, held_E: Tensor, past: Past) -> _Steps:
        """held_E: a sum that has taken the place of the steps, or zeros."""
        held_F, is_sum = held_E[: self._size].numpy(), bool(held_E.any())
        before = Past.read(held_E[self._size :].tolist()) if is_sum else past
        point = _Point(begin(held_F), Control(held_F, before.halvings, voters=self._voters), before, is_sum)
        return _Steps(None if is_sum else past, point, epoch * self._refresh_period)

    def _is_closed(self, steps: _Steps) -> bool:
        """Beside a sum nothing counts that an optimiser would make a step of: it would be the step of one host, which
        nothing bounds."""
        return steps.past is None and self._optimiser is not None

    def _put_aside(self, epoch: int) -> None:
        """Puts an epoch aside, or drops it if nothing more can come for it. It stays in memory if there is no space for
        it."""
        steps = self._epochs[epoch]
        if steps.settled_before < (epoch + 1) * self._refresh_period:
            place = self._shelf.put(_FILED.dump_json(steps, exclude={"marks"}))
            if place is None:
                return
            self._places[epoch] = place
        del self._epochs[epoch]

    def _go(self, point: _Point, epoch: int, values: Mapping[int, _StepValues]) -> _Point:
        for step in sorted(values):
            point = self._take(point, epoch, step, values[step])
        return point

    def _take(self, point: _Point, epoch: int, step: int, values: _StepValues) -> _Point:
        """One step: what was lost before it, the step itself, and what control makes of both."""
        if point.is_void:
            return point
        state, control, past, is_over, reputations = point
        updates = [Update(origin, step, one) for origin, one in values.items()]
        control = control.observe({update.origin: update.loss for update in updates}, state.increment_F)
        factor = max(1, self._factor(step) >> control.halvings)
        moved, following = self._move(state, epoch, updates, factor, reputations)
        if step < self._turn:
            control = control.promise(self._promised(updates, moved.increment_F - state.increment_F))
        is_turn_over = (step + 1) % self._turn == 0
        if is_turn_over and (halvings := control.halvings_before(self._defaults)):
            slower = _Point(begin(control.best_F), control.back(halvings), past, is_over, reputations)
            # A turn of one step is taken again; the steps of a longer one were measured at other weights, and are lost.
            return slower if step else self._go(slower, epoch, {step: values})
        control, back_F = control.judge(self._block, self._alone(step), self._least, is_turn_over=is_turn_over)
        if not is_over and self._alone(step) is not None:
            past, is_over = past.after(epoch, control, self._stop_epochs), True
        return _Point(moved if back_F is None else begin(back_F), control, past, is_over, following)

    def _promised(self, updates: Sequence[Update], step_F: Integers) -> dict[OriginId, int]:
        """How often the rate has to be halved before this step, for each origin."""
        return {
            update.origin: halvings_for(
                self._decoder.promise(update, step_F) * self.unit, update.loss, self._promise_max
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
        sum_E = self._decoder.subspace.zeros()
        sum_F: Integers = sum_E[: self._size].numpy()
        if self._optimiser is None:
            following = self._decoder.add_step(sum_E, epoch, updates, reputations, factor)
            return replace(state, increment_F=state.increment_F + sum_F), following
        following = self._decoder.add_step(sum_E, epoch, updates, reputations)
        # A step of nothing but zeros is passed over: it leaves no trace in the sums either.
        return self._optimiser.step(state, sum_F, factor) if sum_F.any() else state, following

    def _settle(self, epoch: int, steps: _Steps) -> None:
        """In strict windows, closes the turns, or without them the steps, that all clients have published, up to the
        first gap; none while the epoch's past may change. In bounded windows more hosts than clients may publish a
        step: one that was away returns, and another has taken its place."""
        if not self._is_chained or epoch - 1 not in self._final:
            return
        over: dict[int, _StepValues] = {}
        before = steps.settled_before
        turn = range(before, before + self._turn)
        while sum(len(steps.updates.get(step, ())) for step in turn) == self._updates_in_turn:
            over |= {step: steps.updates.pop(step) for step in sorted(steps.updates) if step < turn.stop}
            before = turn.stop
            turn = range(before, before + self._turn)
        if over:
            at, point = steps.mark_before(before)
            later = {step: sent for step, sent in over.items() if step >= at}
            steps.settled, steps.settled_before = self._go(point, epoch, later), before
            steps.marks = {step: mark for step, mark in steps.marks.items() if step > before}
        if before == (epoch + 1) * self._refresh_period:
            self._final.add(epoch)


def _is_kept(age: int, step: int) -> bool:
    """Does the mark before a step stay when the epoch is `age` steps further? Of those that are old, fewer: so what
    comes late takes at most about twice as many steps as it is late, and an epoch has few marks."""
    return step % (1 << max(0, age.bit_length() - 1)) == 0


def _with(values: Mapping[int, _StepValues], updates: Iterable[Update]) -> dict[int, _StepValues]:
    """The same with more updates."""
    added: dict[int, dict[OriginId, UpdateValue]] = defaultdict(dict)
    for origin, step, one in updates:
        added[step][origin] = one
    return {**values, **{step: {**values.get(step, {}), **more} for step, more in added.items()}}


_FILED = TypeAdapter(_Steps)
"""To JSON for a file of this process, and back."""
