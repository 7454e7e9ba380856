"""The slots of a live model: each distinct parameter with its increments, and what modules compute with.

On a GPU a small model waits for Python, so few kernels matter more there than few operations. `A^T U^T` and the vectors
`w + U a` thus are computed once per step, for all slots that are alike at once (`Live.compute_with`); a layer then adds
one thin product, with its bias, to its own (`python -m benchmarks kernels`). Increments change and weights do not:
`layers` says what for, and names the shapes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from seedflood.training.devices import autocast
from seedflood.training.seedflood.stored import StoredMatrix
from seedflood.training.seedflood.subspace import Slot, SlotBasis

ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Probe:
    """A forward pass over the variants. rows: of the whole batch, all copies together. length: tokens per row.
    answer_N: the only positions (row * length + place) that are read in the end, as many of each variant; None: all are
    read."""

    rows: int
    length: int
    answer_N: Tensor | None = None


class Live:
    """What the live modules of one model share.

    a_PF: the increments of all slots, float32 on the model's device. filler: the value of outputs that were not
    computed. probe: the one that is running; None: there is none. alike: the slots that are computed together.
    computed: a cache, which `compute_with` fills. Its keys say where among the F increments those of a slot begin. Its
    values are what modules compute with. Of a matrix that is the last factor of its product (P, R, X), which is `A^T
    U^T` where a slot's side is "u", with X rows of U. Of a vector these are its own values, (P, 1, M). Each call
    computes anew what the cache lacks.
    """

    def __init__(self) -> None:
        self.a_PF = torch.zeros(1, 0)
        self.filler = 0.0
        self.probe: Probe | None = None
        self.alike: Sequence[Alike] = ()
        self.computed: dict[int, Tensor] = {}

    def compute_with(self, a_PF: Tensor) -> None:
        """From now on the model computes with these increments, which must not change meanwhile. They get the gradients
        of any number of backward passes, if they want them."""
        computed: dict[int, Tensor] = {}
        with torch.set_grad_enabled(a_PF.requires_grad):
            for together in self.alike:
                parts = _Parts.apply(a_PF, together)  # type: ignore[no-untyped-call]
                computed |= zip(together.starts, parts, strict=True)
        self.a_PF, self.computed = a_PF, computed

    @contextmanager
    def computing(self, a_PF: Tensor) -> Iterator[None]:
        """Within, the model computes with these increments."""
        before = self.a_PF, self.computed
        self.compute_with(a_PF)
        try:
            yield
        finally:
            self.a_PF, self.computed = before

    @contextmanager
    def probing(self, probe: Probe) -> Iterator[None]:
        """Within, every forward pass is one over the variants."""
        self.probe = probe
        try:
            yield
        finally:
            self.probe = None


class LiveSlot:
    """One distinct parameter, its basis in the current epoch, and its place among the increments.

    u_MR, v_KR (vectors have none): of the basis, in the dtype of the parameter, on the model's device. places: its part
    of the F increments. side: the basis with which a product with it ends, None if there is none. is_of_norm: is it a
    vector of a norm?
    """

    basis: SlotBasis
    u_MR: Tensor
    v_KR: Tensor
    places: slice
    side: Literal["u", "v"] | None = None
    is_of_norm = False

    def __init__(self, slot: Slot, parameter: nn.Parameter, live: Live) -> None:
        self.slot = slot
        self.parameter = parameter
        self.stored: StoredMatrix | None = None
        """In place of the parameter, which then is gone."""
        self.live = live

    def bind(self, basis: SlotBasis, places: slice) -> None:
        """Takes the basis of an epoch."""
        self.basis, self.places = basis, places
        self.u_MR = basis.u_MR.to(self.dtype)
        if basis.v_NR is not None:
            self.v_KR = basis.v_NR.to(self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """In which modules compute with it."""
        if self.is_of_norm:
            return torch.float32
        return self.parameter.dtype if self.stored is None else self.stored.dtype

    @property
    def a(self) -> Tensor:
        """(P, R, R) of a matrix, (P, Y, R) by rows, (P, R) of a vector: a view."""
        a_PX = self.live.a_PF[:, self.places]
        return a_PX.view(len(a_PX), -1, self.basis.u_MR.shape[1]) if self.slot.is_matrix else a_PX

    @property
    def computed(self) -> Tensor | None:
        """Of `Live.computed`."""
        return self.live.computed.get(self.places.start)

    def vectors(self) -> Tensor:
        """The values of a one-dimensional parameter in each variant, `w + U a`: (P, M)."""
        if (computed_P1M := self.computed) is not None:
            return computed_P1M.squeeze(1)
        return torch.addmm(self.parameter.to(torch.float32), self.a, self.basis.u_MR.T).to(self.dtype)

    @property
    def far(self) -> Tensor:
        """The basis with which a product ends, or the only one of a vector, (X, R) float32."""
        return self.basis.v_NR if self.side == "v" and self.basis.v_NR is not None else self.basis.u_MR

    def add_product(self, y_NX: Tensor, x_NY: Tensor, index: Tensor | slice = ALL) -> Tensor:
        """`y + x W^T` of the weight as it is stored, or some columns of it; `y + x W` if it ends with V. y is written
        to."""
        if self.stored is not None:
            return self.stored.add_product(y_NX, x_NY, index, is_transposed=self.side == "u")
        weight_YX = self.parameter[index].T if self.side == "u" else self.parameter
        if y_NX.dtype == x_NY.dtype == weight_YX.dtype:
            return y_NX.addmm_(x_NY, weight_YX)
        return torch.addmm(y_NX, x_NY, weight_YX)  # under autocast

    def lookup(self, index_N: Tensor) -> Tensor:
        """Rows of the weight as it is stored."""
        return functional.embedding(index_N, self.parameter) if self.stored is None else self.stored.lookup(index_N)

    def left(self, index: Tensor | slice) -> Tensor:
        """Rows of `U A` by rows, (X, R). Gradients have one variant."""
        (a_YR,) = self.a
        return self.basis.left(a_YR, index)

    def outer(self, x_NY: Tensor, index: Tensor | slice = ALL) -> tuple[Tensor, Tensor]:
        """`x V A^T U^T`, or some columns of it, as two factors: (P, N, R) and (P, R, X); `x U A V^T` if it ends with
        V."""
        near_YR, far_XR = (self.v_KR, self.u_MR) if self.side == "u" else (self.u_MR, self.v_KR)
        inner_NR = x_NY @ near_YR
        if self.basis.row_M is not None:
            return inner_NR.unsqueeze(0), self.left(index).to(inner_NR.dtype).T.unsqueeze(0)
        if (factor_PRX := self.computed) is not None and index is ALL:
            return inner_NR.view(len(factor_PRX), -1, inner_NR.shape[1]), factor_PRX
        inner_PNR = self.project(inner_NR, from_rows=self.side == "v")
        return inner_PNR, far_XR[index].T.expand(len(inner_PNR), -1, -1)

    def looked_up(self, index_N: Tensor) -> Tensor:
        """Rows of `U A`, (N, R) float32."""
        if self.basis.row_M is not None:
            return self.left(index_N)
        return self.project(functional.embedding(index_N, self.basis.u_MR), from_rows=True).flatten(0, 1)

    def project(self, inner_NR: Tensor, *, from_rows: bool) -> Tensor:
        """Multiplies with A, between the two bases, (P, N, R): inner A (from_rows: inner = x U), or inner A^T (inner =
        x V)."""
        a_PRR = (self.a if from_rows else self.a.mT).to(inner_NR.dtype)
        return torch.bmm(inner_NR.view(len(a_PRR), -1, inner_NR.shape[1]), a_PRR)


class Alike:
    """Slots of one shape and type, for all of which one product computes what their modules compute with. starts: where
    the increments of each begin.

    Shapes: G slots, X the length of their vectors or outputs, Y = P R rows of factors, or P of vectors.
    """

    def __init__(self, slots: Sequence[LiveSlot]) -> None:
        """slots: with their bases; the one with which a product ends is kept here, once, from now on."""
        self._far_GXR = torch.stack([slot.far for slot in slots])
        self._own: list[Tensor] = [slot.parameter for slot in slots if not slot.slot.is_matrix]
        self.starts, self._dtype = [slot.places.start for slot in slots], slots[0].dtype
        places = []
        for slot, far_XR in zip(slots, self._far_GXR, strict=True):
            slot.bind(replace(slot.basis, **{"v_NR" if slot.side == "v" else "u_MR": far_XR}), slot.places)
            place_XR = torch.arange(slot.places.start, slot.places.stop).view(-1, far_XR.shape[1])
            places.append((place_XR.T if slot.side == "u" else place_XR).flatten())
        self._places = torch.cat(places).to(self._far_GXR.device)

    def compute(self, a_PF: Tensor) -> Tensor:
        """For all slots what `Live.computed` has of each, (G, Y, X)."""
        count, _, rank = self._far_GXR.shape
        a_PGRR = a_PF.index_select(1, self._places).view(len(a_PF), count, -1, rank)
        a_GYR = a_PGRR.transpose(0, 1).flatten(1, 2)
        if not self._own:
            return torch.bmm(a_GYR, self._far_GXR.mT).to(self._dtype)
        own_G1X = torch.stack(self._own).to(torch.float32).unsqueeze(1)
        return torch.baddbmm(own_G1X, a_GYR, self._far_GXR.mT).to(self._dtype)

    def slopes(self, slope_GYX: Tensor, variants: int, size: int) -> Tensor:
        """From the gradient of `compute` to that of the F = `size` increments, (P, F)."""
        count, _, rank = self._far_GXR.shape
        slope_GYR = torch.bmm(slope_GYX.to(torch.float32), self._far_GXR)
        slope_PGRR = slope_GYR.view(count, variants, -1, rank).transpose(0, 1)
        slope_PF = slope_GYR.new_zeros(variants, size)
        return slope_PF.index_copy_(1, self._places, slope_PGRR.reshape(variants, -1))


class _Parts(torch.autograd.Function):
    """`Alike.compute`, slot by slot, (P, Y / P, X). It keeps no tensor for the backward pass, so that several passes
    may end here: of micro-batches, or of a script that calls `backward` when it wants."""

    @staticmethod
    def forward(ctx: Any, a_PF: Tensor, together: Alike) -> tuple[Tensor, ...]:
        ctx.together, ctx.shape = together, a_PF.shape
        parts_GYX = together.compute(a_PF)
        return tuple(one.view(len(a_PF), -1, one.shape[1]) for one in parts_GYX.unbind())

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        with autocast(slopes[0].device, enabled=False):  # a script may call `backward` within one
            slope_GYX = torch.stack(slopes).flatten(1, 2)
            return ctx.together.slopes(slope_GYX, *ctx.shape), None


def find_alike(slots: Iterable[LiveSlot]) -> list[Alike]:
    """The slots, which have their bases, by what makes them alike. A slot like no other is left out, as the head of a
    model, whose factor is large."""
    groups: dict[object, list[LiveSlot]] = defaultdict(list)
    for slot in slots:
        if slot.basis.row_M is None and (slot.side is not None or not slot.slot.is_matrix):
            groups[slot.far.shape, slot.slot.is_matrix, slot.dtype].append(slot)
    return [Alike(group) for group in groups.values() if len(group) > 1]
