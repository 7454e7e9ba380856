"""The replica: a model, the coefficients of every epoch, and their digest.

Weights follow from the base model and the coefficients alone. The open epoch is computed live; an epoch is folded into
the weights when a later one opens. An update that arrives after that is folded by itself, with a recomputed basis.
One that arrives for a later epoch waits in that epoch's coefficients. The digest covers coefficients, so it does not
depend on what was folded when: replicas that hold the same updates have equal digests.

The coefficients of one epoch, packed, stand for its updates, in the journal and for hosts that catch up. Nothing of the
size of the weights is kept: a host that starts again folds all epochs of its journal again. That takes a thousandth of
the time in which they were measured (OPT-125M at rank 32: 1.4 s on one core for 1,000 steps).

Not safe for threads: one thread computes.

Shapes: F all coefficients of an epoch, E all its numbers (subspace.py), M rows and N columns of a parameter, R rank.
"""

import hashlib
import math
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path

import torch
from torch import Tensor, nn

from seedflood.config import RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.protocol.seedflood.epochs import CLOSING_ROUNDS
from seedflood.training.causal import CausalModel
from seedflood.training.devices import same_draws
from seedflood.training.models import BaseModel, ExportDtype, distinct_parameters, export_model
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Objective
from seedflood.training.ranks import ALONE, OneRank, Ranks, RoundKind
from seedflood.training.seedflood.aggregation import make_aggregation
from seedflood.training.seedflood.bypass import check_reads
from seedflood.training.seedflood.coefficients import EpochCoefficients
from seedflood.training.seedflood.compression import compression_of
from seedflood.training.seedflood.control import Past, past_size
from seedflood.training.seedflood.estimate import EPSILON, ESTIMATES, TWO_SIDED, Measurement, variant_losses
from seedflood.training.seedflood.experts import find_experts
from seedflood.training.seedflood.fetched import FetchedMatrix
from seedflood.training.seedflood.gradient import Gradient, gradient
from seedflood.training.seedflood.layers import LiveModel, attach
from seedflood.training.seedflood.placing import deal_out, lay_down
from seedflood.training.seedflood.quantised import Quantisation
from seedflood.training.seedflood.rates import default_learning_rate
from seedflood.training.seedflood.reputation import Reputations
from seedflood.training.seedflood.singular import fix_singular_columns, frobenius_norm
from seedflood.training.seedflood.skipping import mark_skippable
from seedflood.training.seedflood.slots import LiveSlot, find_alike
from seedflood.training.seedflood.subspace import SlotBasis, Subspace
from seedflood.training.stacks import layers_of


class Replica:
    """A model under training. It takes the base model over, which must not be used elsewhere afterwards.

    Raises ModelError if a parameter of the model cannot be trained.
    """

    def __init__(
        self,
        base: BaseModel,
        run: RunSettings,
        folder: Path | None = None,
        *,
        quantize: Quantisation | None = None,
        reference: CausalModel | None = None,
        ranks: OneRank = ALONE,
    ) -> None:
        """folder: where old epochs are put aside (`EpochCoefficients`). quantize: how matrices are stored; then the
        weights cannot be read, only computed with. reference: a second base model, which stays as it is. ranks: the
        processes that are this host; each keeps a part of every matrix."""
        settings = run.seedflood
        self.base, self.model, self.reference, self.ranks = base, base.model, reference, ranks
        self.causal = LiveModel(base.model)
        """The model as objectives see it, with the replica's weights."""
        self.refresh_period = settings.refresh_period
        self._known_after = (CLOSING_ROUNDS + settings.delay) * settings.local_steps
        """So many steps after an epoch all hosts hold what came late for it."""
        self.epsilon = EPSILON
        self._estimate = ESTIMATES.get(settings.estimate, TWO_SIDED)  # one that steps by gradients may be asked, too
        self.live, self.slots = attach(base.model)
        self._slot_of = _slots_by_name(base.model, self.slots)
        """The number of the slot of a parameter, by each of its names."""
        slots, has_gradients = [slot.slot for slot in self.slots], settings.estimate == "gradient"
        shapes = [slot.shape for slot in slots]
        left = past_size(run.clients) if settings.window == "strict" else 0
        self.subspace = Subspace(slots, run_seed=run.seed, rank=settings.rank, left=left, by_rows=has_gradients)
        norms = self._read_weights(settings.rank // 2) if has_gradients else []
        self.reward_rate = default_learning_rate(settings, shapes, by_reward=True)
        """What a loop of its own that learns by reward should take; the run cannot know it from its task."""
        self.default_rate = default_learning_rate(settings, shapes, norms, by_reward=run.objective.task == "reward")
        self.learning_rate = settings.learning_rate or self.default_rate
        self.untrained = base.parameters_count - sum(math.prod(shape) for shape in shapes)
        """How many numbers the parameters hold that are not trained: routers and experts of a mixture."""
        self._experts = find_experts(base.model)
        self.offloaded_bytes = 0 if ranks.count > 1 else lay_down(base, self.slots, self._experts, run, quantize)
        """Of weights for which the device has no room."""
        self.compression = compression_of(settings, self.subspace)
        self.epoch = 0
        self._aggregation = make_aggregation(run, self.subspace, self.compression, self.default_rate, folder)
        self._coefficients = EpochCoefficients(self.subspace, folder)
        self._a_F = torch.zeros(self.subspace.size, dtype=torch.float32, device=base.device)
        self._late_bases: tuple[int, list[SlotBasis]] | None = None
        self._out: set[int] = set()
        """The epochs that do not count, and are not in the weights."""
        self._bind()
        check_reads(self.model)
        mark_skippable(self.causal, self.live)
        if isinstance(ranks, Ranks):
            self._deal_out(ranks, quantize)

    @property
    def epoch_bytes(self) -> int:
        """Size of the numbers of an epoch, unpacked."""
        return 8 * self.subspace.numbers

    @property
    def left_bytes(self) -> int:
        """How many of these, at the end, are no coefficients."""
        return 8 * (self.subspace.numbers - self.subspace.size)

    @property
    def halvings(self) -> int:
        """How often the learning rate has been halved, because the run unlearned (`control`)."""
        left = self._coefficients.past_before(self.epoch + 1).halvings  # only in strict windows
        return max(left, self._aggregation.halvings(self.epoch))

    @property
    def reputations(self) -> Reputations:
        """How far each host agrees with the others, in the open epoch."""
        return self._aggregation.reputations(self.epoch)

    def is_over(self, step: int) -> bool:
        """Had the run ended (`control`), and do all hosts know that before they measure this step?"""
        return self._coefficients.past_before((step - self._known_after) // self.refresh_period).is_last

    def epoch_of(self, step: int) -> int:
        return step // self.refresh_period

    def apply(self, updates: Iterable[Update]) -> None:
        """Applies updates of any steps, in any order. Each update must be given only once; the caller keeps the
        frontier."""
        for epoch, ours in self._by_epoch(updates):
            self._change(epoch, ours, self._aggregation.changed)

    def replay(self, pages: Iterable[Sequence[Update]]) -> None:
        """Applies updates of a journal, which come origin by origin: steps are computed once all are there."""
        epochs: set[int] = set()
        for page in pages:
            for epoch, ours in self._by_epoch(page):
                epochs.add(epoch)
                self._change(epoch, ours, self._aggregation.note)
        for epoch in sorted(epochs):
            self._change(epoch, (), self._aggregation.changed)

    def preview(self, updates: Sequence[Update]) -> None:
        """Until anything is applied, computes as if these updates of the open epoch were applied."""
        assert all(self.epoch_of(update.step) == self.epoch for update in updates), "they are of another epoch"
        if not updates:
            self._refresh()
            return
        held_E, past = self._coefficients[self.epoch], self._coefficients.past_before(self.epoch)
        self._compute_with(self._aggregation.preview(self.epoch, held_E, updates, past))

    def measure(self, step: int, seed: int, objective: Objective, batch: Batch) -> Measurement:
        """Estimates a step on a batch, with the weights as they are. Opens the step's epoch, which must not be an
        earlier one than that which is open. seed: see `protocol.seedflood.seeds.probe_seed`."""
        self.open_for(step)
        moves = self.subspace.moves(self.epoch, torch.tensor([seed], dtype=torch.int64)).to(self.base.device)
        a_PF = self._estimate.variants(self._a_F, moves, self.epsilon)
        losses = variant_losses(self.causal, self.live, objective, batch, a_PF, self.ranks)
        return self._estimate.conclude(losses, self.epsilon, self.compression.limit)

    def measure_by(self, loss_of: Callable[[], float], seed: int) -> Measurement:
        """Estimates the step for which the model is lent, by a loss that somebody else computes with it."""
        device = self.base.device
        moves = self.subspace.moves(self.epoch, torch.tensor([seed], dtype=torch.int64)).to(device)
        variants = self._estimate.variants(self._a_F, moves, self.epsilon)
        losses: list[float] = []
        for number, variant_F in enumerate(variants, 1):
            # All variants draw the same dropout: else its noise would be taken for a slope.
            with same_draws(device, enabled=number < len(variants)), self.live.computing(variant_F.unsqueeze(0)):
                losses.append(loss_of())
        return self._estimate.conclude(losses, self.epsilon, self.compression.limit)

    @torch.no_grad()
    def lend(self, increments_1F: nn.Parameter) -> None:
        """From now on, until `take_back`, the model computes with this parameter, which takes the values of the
        increments: so backward passes leave the gradient in it. Nothing may be applied meanwhile."""
        increments_1F.copy_(self._a_F)
        self.live.compute_with(increments_1F)

    def take_back(self) -> None:
        self.live.a_PF, self.live.computed = self._a_F.unsqueeze(0), {}  # they change: each call computes its own

    def close(self) -> None:
        """Makes the weights stand for everything that was applied here. Nothing may be applied or measured after
        this."""
        self.fold_open_epoch()
        self._a_F.zero_()
        self.take_back()

    def measure_gradient(
        self,
        step: int,
        objective: Objective,
        batch: Batch,
        *,
        micro_batch: int | None = None,
        is_checkpointed: bool = False,
    ) -> Gradient:
        """The slopes along all coordinates, with the weights as they are. Opens the step's epoch."""
        self.open_for(step)
        layers = layers_of(self.model) if is_checkpointed else ()
        given = (self.causal, self.live, objective, batch, self._a_F)
        return gradient(*given, micro_batch=micro_batch, layers=layers, ranks=self.ranks)

    def open_epoch(self, epoch: int) -> None:
        """Opens an epoch, after folding the open one and all between them. Does nothing for an earlier epoch."""
        if epoch <= self.epoch:
            return
        self.fold_open_epoch()
        for between in self._coefficients:
            if self.epoch < between < epoch and between not in self._out:
                self._fold(between, self._coefficients[between])
        self.epoch = epoch
        self._late_bases = None
        self._bind()

    def open_latest(self) -> None:
        """Opens the latest epoch that holds an update, so that the weights stand for everything that was applied."""
        self.open_epoch(max(self._coefficients, default=0))

    def fold_open_epoch(self) -> None:
        """Adds the open epoch to the weights, if it counts. Only `open_epoch` may follow, for the live layers would
        add it again."""
        if self.epoch in self._out:
            return
        self._fold(self.epoch, self._coefficients[self.epoch], [slot.basis for slot in self.slots])

    def digest(self) -> bytes:
        """32 bytes over the coefficients of all epochs that are not zero."""
        hasher = hashlib.sha256(b"seedflood replica 1\0")
        for epoch, digest in self._coefficients.digests():
            hasher.update(struct.pack("<Q", epoch) + digest)
        return hasher.digest()

    def sum_epoch(self, epoch: int) -> bytes:
        """The sum of an epoch's updates: its coefficients, packed (`Subspace.pack`)."""
        return self.subspace.pack(self._coefficients[epoch])

    def adopt(self, epoch: int, packed: bytes, updates: Iterable[Update]) -> None:
        """Replaces the coefficients of an epoch by a sum (of `sum_epoch`, on any host) and these updates; the weights
        follow.

        Raises ValueError if the sum has another size. Foreign sums are checked before they come here.
        """
        others = list(updates)
        assert all(self.epoch_of(update.step) == epoch for update in others), f"updates beyond epoch {epoch}"
        past = self._coefficients.past_before(epoch)
        self._replace(epoch, self._aggregation.adopted(epoch, self.subspace.unpack(packed), others, past))

    def seal(self, epoch: int) -> None:
        """The sum of an epoch is final: nothing that comes for it changes what it has."""
        self._aggregation.seal(epoch)

    def hand_over(self, other: "Replica") -> None:
        """Applies to another replica of this run all that was applied here, and opens the same epoch there."""
        for epoch in self._coefficients:
            other.adopt(epoch, self.sum_epoch(epoch), ())
        other.open_epoch(self.epoch)

    def weights(self) -> dict[str, Tensor]:
        """All weights as `weight` has them, by all names of the parameters, also of those that are not trained."""
        weights = [self.weight(index) for index in range(len(self.slots))]
        others = {
            id(parameter): _copy_master(self._master(name, parameter))
            for name, parameter in distinct_parameters(self.model)
            if name not in self._slot_of
        }
        named = self.model.named_parameters(remove_duplicate=False)
        untrained = {name: others[id(parameter)] for name, parameter in named if name not in self._slot_of}
        trained = {name: weights[index] for name, index in self._slot_of.items()}
        elsewhere = {
            one.name: one.stored.whole().view(one.shape)
            for one in self._experts
            if isinstance(one.stored, FetchedMatrix)
        }
        return trained | untrained | elsewhere

    def weight(self, index: int) -> Tensor:
        """The weight of slot number `index` with the open epoch folded in: a float32 copy in host memory."""
        slot = self.slots[index]
        if isinstance(slot.stored, FetchedMatrix):
            master = slot.stored.whole()
        else:
            master = _copy_master(self._master(slot.slot.name, slot.parameter))
        return _add_increment(master, slot.basis.to("cpu"), slot.a[0].detach().cpu())

    def parts(self, index: int) -> Iterator[tuple[SlotBasis, Tensor]]:
        """What each epoch that counts has changed of slot number `index`: its basis and A, float32 in host memory."""
        for epoch in self._coefficients:
            part = self.subspace.part(self._coefficients[epoch], index)
            if part.any() and epoch not in self._out:
                yield self.subspace.basis(epoch, index), self.subspace.increments(part, self._aggregation.unit)

    def change(self, index: int) -> Tensor:
        """What all epochs have changed of slot number `index`: float32 of the shape of its weight, in host memory."""
        change = torch.zeros(self.slots[index].slot.shape)
        for basis, a in self.parts(index):
            _add_increment(change, basis, a)
        return change

    def export(self, folder: str | os.PathLike[str], *, card: str = "", dtype: ExportDtype = "float32") -> Path:
        """Writes the weights as they are as a Hugging Face folder (`models.export_model`, which see for errors)."""
        return export_model(self.base, self.weights(), folder, card=card, dtype=dtype)

    def open_for(self, step: int) -> None:
        """Opens the epoch of a step that is to be measured."""
        epoch = self.epoch_of(step)
        assert epoch >= self.epoch, f"step {step} is of epoch {epoch}, but epoch {self.epoch} is open"
        self.open_epoch(epoch)

    def _by_epoch(self, updates: Iterable[Update]) -> list[tuple[int, list[Update]]]:
        by_epoch: dict[int, list[Update]] = defaultdict(list)
        for update in updates:
            by_epoch[self.epoch_of(update.step)].append(update)
        return sorted(by_epoch.items())

    def _change(
        self, epoch: int, updates: Sequence[Update], change: Callable[[int, Tensor, Sequence[Update], Past], Tensor]
    ) -> None:
        """Adds updates to an epoch. change: of the aggregation."""
        past = self._coefficients.past_before(epoch)
        self._replace(epoch, change(epoch, self._coefficients[epoch], updates, past))

    def _replace(self, epoch: int, wanted_E: Tensor) -> None:
        """Gives an epoch other numbers. The next one begins again if that changes its past, and so on."""
        for later in [*(other for other in self._coefficients if other > epoch), None]:
            before = self._coefficients.past_before(epoch + 1)
            self._add(epoch, wanted_E - self._coefficients[epoch])
            past = self._coefficients.past_before(epoch + 1)
            if later is None or past == before:
                break
            epoch, wanted_E = later, self._aggregation.changed(later, self._coefficients[later], (), past)
        self._take_out()

    def _take_out(self) -> None:
        """Takes epochs out of the weights that do not count any more, and puts back what counts again."""
        out = self._coefficients.out()
        changed, self._out = out ^ self._out, out
        for epoch in sorted(changed):
            if epoch < self.epoch:
                self._fold(epoch, self._coefficients[epoch] * (-1 if epoch in out else 1))
        if self.epoch in changed:
            self._refresh()

    def _add(self, epoch: int, added_E: Tensor) -> None:
        if epoch < self.epoch and epoch not in self._out and added_E.any():
            if self._late_bases is None or self._late_bases[0] != epoch:
                # Kept until the next epoch opens: stragglers come in several windows after a boundary.
                self._late_bases = (epoch, self._bases(epoch))
            self._fold(epoch, added_E, self._late_bases[1])
        self._coefficients.add(epoch, added_E)
        if epoch == self.epoch:
            self._refresh()

    def _refresh(self) -> None:
        """Another epoch is open, or it has other coefficients: computes with these, if it counts."""
        held_E = self._coefficients[self.epoch]
        self._compute_with(held_E if self.epoch not in self._out else torch.zeros_like(held_E))

    def _compute_with(self, sum_E: Tensor) -> None:
        """Computes with these coefficients in the open epoch."""
        self._a_F.copy_(self.subspace.increments(sum_E[: self.subspace.size], self._aggregation.unit))

    def _bind(self) -> None:
        """Gives the slots the basis and the increments of the epoch that is open."""
        self.take_back()
        for index, (slot, basis) in enumerate(zip(self.slots, self._bases(self.epoch), strict=True)):
            slot.bind(basis, self.subspace.places_of(index))
        self.live.alike = find_alike(self.slots)
        self._refresh()

    def _bases(self, epoch: int) -> list[SlotBasis]:
        return [self.subspace.basis(epoch, index, self.base.device) for index in range(len(self.slots))]

    @torch.no_grad()
    def _fold(self, epoch: int, sum_E: Tensor, bases: list[SlotBasis] | None = None) -> None:
        """Adds coefficients of an epoch to the weights: float32 masters first, then the device's copies of them."""
        if not sum_E.any():
            return
        a_F = self.subspace.increments(sum_E[: self.subspace.size], self._aggregation.unit)
        self.ranks.order(RoundKind.FOLD, epoch, values=a_F)
        self.fold_increments(epoch, a_F, bases)

    @torch.no_grad()
    def fold_increments(self, epoch: int, a_F: Tensor, bases: list[SlotBasis] | None = None) -> None:
        """Adds increments of an epoch to the weights that are in this process. bases: of the epoch, if they are
        there."""
        for index, slot in enumerate(self.slots):
            basis = bases[index] if bases is not None else self.subspace.basis(epoch, index, self.base.device)
            a = self.subspace.part(a_F, index)
            if slot.stored is not None:
                slot.stored.fold(epoch, basis, a)
                continue
            master = self._master(slot.slot.name, slot.parameter)
            if master is slot.parameter:
                _add_increment(master, basis, a.to(master.device))
                continue
            _add_increment(master, basis.to("cpu"), a)
            slot.parameter.copy_(master)

    @property
    def increments(self) -> Tensor:
        """What the model computes with in the open epoch, (F,): float32 in host memory."""
        return self._a_F.detach().cpu().clone()

    def compute_as(self, epoch: int, a_F: Tensor) -> None:
        """On a rank that keeps no coefficients: computes with these increments of this epoch. Earlier epochs are
        folded by themselves."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._bind()
        self._a_F.copy_(a_F)

    def _deal_out(self, ranks: Ranks, kind: Quantisation | None) -> None:
        deal_out(self.base, self.slots, self._experts, ranks, kind)
        if self._a_F.device != self.base.device:
            self._a_F = self._a_F.to(self.base.device)
            self._bind()

    def _read_weights(self, count: int) -> list[float]:
        """Takes so many columns of each matrix's bases from its singular vectors. The norms of all matrices but the
        embeddings of tokens."""
        masters = [self._master(slot.slot.name, slot.parameter) for slot in self.slots]
        fix_singular_columns(self.subspace, count, masters)
        is_dense = [slot.slot.is_matrix and not slot.slot.has_tokens for slot in self.slots]
        return [frobenius_norm(master) for master in compress(masters, is_dense)]

    def _master(self, name: str, parameter: Tensor) -> Tensor:
        return parameter if self.base.master is None else self.base.master.get(name, parameter)


def _slots_by_name(model: nn.Module, slots: Sequence[LiveSlot]) -> dict[str, int]:
    number_of = {id(slot.parameter): number for number, slot in enumerate(slots)}
    named = model.named_parameters(remove_duplicate=False)
    return {name: number_of[id(one)] for name, one in named if id(one) in number_of}


def _copy_master(master: Tensor) -> Tensor:
    """A float32 copy in host memory."""
    return master.detach().to(device="cpu", dtype=torch.float32, copy=True)


def _add_increment(weight: Tensor, basis: SlotBasis, a: Tensor) -> Tensor:
    """`weight += U A V^T` (or `U a`) in place, all float32 on one device."""
    if basis.v_NR is None:
        return weight.addmv_(basis.u_MR, a)
    return weight.addmm_(basis.left(a), basis.v_NR.T)
