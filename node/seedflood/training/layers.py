"""The live path: modules that compute with `W + U A V^T` and leave `W` as it is (design section 3).

A module of a known kind changes its class to a live one that inherits from its own, so names, parameters, hooks and
the logic of subclasses (the offset of OPT's position embedding) stay. It then computes

    y = x W^T + ((x V) A^T) U^T          A = -(learning_rate / clients) C 2^-20

and, during a probe, one entry of A differs by +epsilon in the first half of the batch's rows and by -epsilon in the
second: both losses of the two-point estimate come from one forward that shares the base product, and nothing of the
size of a weight matrix is written. Increments are computed in float32 and added before the cast to the model's dtype,
so half precision does not lose them.

Shapes: N positions (all leading dimensions of an input, flattened), M rows and K columns of a stored weight, R rank,
P variants of the parameters (1, or 2 during a probe). U is (M, R), V is (K, R), whatever the module does with W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from seedflood.errors import ModelError
from seedflood.training.subspace import Slot, SlotBasis

SUPPORTED = "nn.Linear, Conv1D, nn.Embedding, nn.LayerNorm and RMSNorm classes"


@dataclass(frozen=True, slots=True)
class Probe:
    """A perturbation: rows (even) is the size of the doubled batch, length its tokens per row.

    coordinates: (i, j) of every slot, in the order of the slots.
    """

    rows: int
    length: int
    epsilon: float
    coordinates: Sequence[tuple[int, int]]


class Live:
    """What the live modules of one model share: the probe that is under way, if any."""

    def __init__(self) -> None:
        self.probe: Probe | None = None


class LiveSlot:
    """One distinct parameter with the basis and the increments of the current epoch.

    u_MR, v_KR (None for vectors): float32 on the model's device. a: (R, R) or (R,) float32, a view that the replica
    writes; it then calls `refresh`.
    """

    u_MR: Tensor
    v_KR: Tensor
    a: Tensor

    def __init__(self, index: int, slot: Slot, parameter: nn.Parameter, live: Live) -> None:
        self.index = index
        self.slot = slot
        self.parameter = parameter
        self.live = live
        self._vector_M: Tensor | None = None

    def bind(self, basis: SlotBasis, a: Tensor) -> None:
        """Takes the basis of an epoch and the view in which its increments will stand."""
        self.u_MR = basis.u_MR
        if basis.v_NR is not None:
            self.v_KR = basis.v_NR
        self.a = a
        self.refresh()

    def refresh(self) -> None:
        """Forgets what was computed from the increments or the weights, which have changed."""
        self._vector_M = None

    def vectors(self) -> Tensor:
        """A one-dimensional parameter as it stands: (P, M) float32, `w + U a`, then `+-epsilon u_i` during a probe."""
        if self._vector_M is None:
            self._vector_M = torch.addmv(self.parameter.to(torch.float32), self.u_MR, self.a)
        probe = self.live.probe
        if probe is None:
            return self._vector_M.unsqueeze(0)
        step_M = self.u_MR[:, probe.coordinates[self.index][0]] * probe.epsilon
        return torch.stack((self._vector_M + step_M, self._vector_M - step_M))

    def project(self, inner_NR: Tensor, *, from_rows: bool) -> Tensor:
        """The increment's part between the bases: inner A (from_rows: inner = x U) or inner A^T (inner = x V).

        During a probe, A[i, j] differs by +epsilon for the first half of the positions, by -epsilon for the second.
        """
        outer_NR = inner_NR @ (self.a if from_rows else self.a.T)
        probe = self.live.probe
        if probe is not None:
            i, j = probe.coordinates[self.index]
            source, target = (i, j) if from_rows else (j, i)
            half = len(inner_NR) // 2
            outer_NR[:half, target].add_(inner_NR[:half, source], alpha=probe.epsilon)
            outer_NR[half:, target].sub_(inner_NR[half:, source], alpha=probe.epsilon)
        return outer_NR


class LiveModule(nn.Module):
    """What live modules have in common: the slots of their own parameters, by the parameter's name in the module."""

    own_name: str
    slots: dict[str, LiveSlot]
    live: Live

    def doubled(self, x: Tensor, features: int) -> Tensor:
        """x with leading dimensions whose halves are the halves of the probe's rows.

        features: trailing dimensions that are no positions (0 for indices). Inputs that are shared by all rows, such as
        position ids of shape (1, T) or (T,), are expanded. Raises ModelError for a shape that cannot be told.
        """
        probe = self.live.probe
        if probe is None:
            return x
        leading = x.shape[: x.dim() - features]
        if len(leading) == 1 and leading[0] == probe.rows * probe.length:
            return x
        if len(leading) == 1 and features == 0 and leading[0] == probe.length:
            return x.expand(probe.rows, *x.shape)
        if leading and leading[0] == probe.rows:
            return x
        if leading and leading[0] == 1:
            return x.expand(probe.rows, *x.shape[1:])
        raise ModelError(
            f"{self.own_name} was given an input of shape {tuple(x.shape)} in a batch of {probe.rows} "
            f"rows of {probe.length} tokens, and which rows it belongs to cannot be told: this model cannot be trained."
        )

    def add_bias(self, y_NM: Tensor) -> Tensor:
        """Adds the bias as it stands, in place where y allows."""
        slot = self.slots.get("bias")
        if slot is None:
            return y_NM
        bias_PM = slot.vectors().to(y_NM.dtype)
        y_NM.view(len(bias_PM), -1, y_NM.shape[-1]).add_(bias_PM.unsqueeze(1))
        return y_NM


def add_increment(y_NM: Tensor, outer_NR: Tensor, basis_MR: Tensor) -> Tensor:
    """`y + outer basis^T`, the sum in float32, the result in the dtype of y (in place if that is float32)."""
    if y_NM.dtype == torch.float32:
        return y_NM.addmm_(outer_NR, basis_MR.T)
    return torch.addmm(y_NM.to(torch.float32), outer_NR, basis_MR.T).to(y_NM.dtype)


class LiveLinear(LiveModule, nn.Linear):
    """nn.Linear: the weight is (out, in)."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.doubled(x, features=1)
        x_NK = x.reshape(-1, x.shape[-1])
        slot = self.slots["weight"]
        inner_NR = x_NK.to(torch.float32) @ slot.v_KR
        y_NM = add_increment(x_NK @ self.weight.T, slot.project(inner_NR, from_rows=False), slot.u_MR)
        return self.add_bias(y_NM).view(*x.shape[:-1], -1)


class LiveConv1D(LiveModule, Conv1D):
    """transformers' Conv1D (GPT-2): the weight is (in, out)."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.doubled(x, features=1)
        x_NM = x.reshape(-1, x.shape[-1])
        slot = self.slots["weight"]
        inner_NR = x_NM.to(torch.float32) @ slot.u_MR
        y_NK = add_increment(x_NM @ self.weight, slot.project(inner_NR, from_rows=True), slot.v_KR)
        return self.add_bias(y_NK).view(*x.shape[:-1], -1)


class LiveEmbedding(LiveModule, nn.Embedding):
    """nn.Embedding: the weight is (tokens, width). Subclasses reach this forward by their `super().forward`."""

    def forward(self, input: Tensor) -> Tensor:
        index = self.doubled(input, features=0)
        index_N = index.reshape(-1)
        slot = self.slots["weight"]
        inner_NR = functional.embedding(index_N, slot.u_MR)
        y_NK = functional.embedding(index_N, self.weight)
        y_NK = add_increment(y_NK, slot.project(inner_NR, from_rows=True), slot.v_KR)
        return y_NK.view(*index.shape, -1)


class LiveLayerNorm(LiveModule, nn.LayerNorm):
    """nn.LayerNorm over the last dimension, with or without bias."""

    def forward(self, input: Tensor) -> Tensor:
        x = self.doubled(input, features=1)
        normed = functional.layer_norm(x.to(torch.float32), self.normalized_shape, eps=self.eps)
        scale_PK = self.slots["weight"].vectors()
        y_PNK = normed.view(len(scale_PK), -1, normed.shape[-1])
        if "bias" in self.slots:
            y_PNK = torch.addcmul(self.slots["bias"].vectors().unsqueeze(1), y_PNK, scale_PK.unsqueeze(1))
        else:
            y_PNK = y_PNK * scale_PK.unsqueeze(1)
        return y_PNK.view(x.shape).to(x.dtype)


class LiveRMSNorm(LiveModule):
    """Classes that compute `weight * x / sqrt(mean(x^2) + epsilon)`; that a class does so is checked when attached."""

    rms_epsilon: float | None

    def forward(self, x: Tensor) -> Tensor:
        x = self.doubled(x, features=1)
        normed = functional.rms_norm(x.to(torch.float32), x.shape[-1:], eps=self.rms_epsilon)
        scale_PK = self.slots["weight"].vectors()
        y_PNK = normed.view(len(scale_PK), -1, normed.shape[-1]) * scale_PK.unsqueeze(1)
        return y_PNK.view(x.shape).to(x.dtype)


def attach(model: nn.Module) -> tuple[Live, list[LiveSlot]]:
    """Turns the modules of a model into live ones; returns what they share and the slots in the order of their names.

    All parameters are trained. Raises ModelError, naming module class and parameter, if one is in a module of a kind
    that is not supported; the model is then as it was.
    """
    owners = [(path, module) for path, module in model.named_modules() if _own_parameters(module)]
    kinds = [_live_kind(path, module) for path, module in owners]
    live = Live()
    slots = _make_slots(model, live)
    by_parameter = {id(slot.parameter): slot for slot in slots}
    for (_, module), kind in zip(owners, kinds, strict=True):
        own = type(module)
        slots_here = {name: by_parameter[id(parameter)] for name, parameter in _own_parameters(module).items()}
        module.__class__ = _live_class(own, kind)
        assert isinstance(module, LiveModule)
        module.live, module.slots = live, slots_here
        if isinstance(module, LiveRMSNorm):
            module.rms_epsilon = _rms_epsilon(module)
    model.requires_grad_(False)
    return live, slots


def find_slots(model: nn.Module) -> list[tuple[Slot, nn.Parameter]]:
    """The distinct parameters in the order of their names; a tied parameter bears the least of its names."""
    names: dict[int, str] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = min(name, names.get(id(parameter), name))
        parameters[id(parameter)] = parameter
    order = sorted(names, key=lambda key: names[key])
    return [(Slot(names[key], tuple(parameters[key].shape)), parameters[key]) for key in order]


def _make_slots(model: nn.Module, live: Live) -> list[LiveSlot]:
    return [LiveSlot(index, slot, parameter, live) for index, (slot, parameter) in enumerate(find_slots(model))]


def _own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters(recurse=False))


def _live_class(own: type[nn.Module], kind: type[LiveModule]) -> type[LiveModule]:
    """A class that is both: the live forward comes first, but below the own forward of an embedding's subclass."""
    bases: tuple[type, ...] = (kind,) if issubclass(kind, own) else (kind, own)
    if kind is LiveEmbedding and own is not nn.Embedding:
        bases = (own, kind)
    return type(f"Live{own.__name__}", bases, {"own_name": own.__name__})


def _live_kind(path: str, module: nn.Module) -> type[LiveModule]:
    """The live class for a module, or ModelError."""
    own = type(module)
    parameters = _own_parameters(module)
    if own.forward is nn.Linear.forward:
        return LiveLinear
    if own.forward is Conv1D.forward:
        return LiveConv1D
    if isinstance(module, nn.Embedding) and module.max_norm is None and _is_embedding_forward(own):
        return LiveEmbedding
    if own.forward is nn.LayerNorm.forward and parameters["weight"].dim() == 1:
        return LiveLayerNorm
    if own.__name__.endswith("RMSNorm") and list(parameters) == ["weight"] and _is_plain_rms_norm(module):
        return LiveRMSNorm
    names = ", ".join(f"{path}.{name}".lstrip(".") for name in parameters)
    raise ModelError(
        f"Cannot train {names}: modules of class {own.__name__} are not supported ({SUPPORTED} are). "
        "Choose a model of the OPT, GPT-2, Llama, Qwen2 or Mistral family."
    )


def _is_embedding_forward(own: type[nn.Module]) -> bool:
    """Whether forward is that of nn.Embedding or ends in it by super(), so that a live one can take its place."""
    return own.forward is nn.Embedding.forward or "super" in own.forward.__code__.co_names


def _rms_epsilon(module: Any) -> float | None:
    epsilon: float | None = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return epsilon


@torch.no_grad()
def _is_plain_rms_norm(module: nn.Module) -> bool:
    """Whether a class of that name computes the plain formula: Gemma's, for one, scales by 1 + weight."""
    weight = module.get_parameter("weight")
    if weight.dim() != 1:
        return False
    x = torch.linspace(-1, 2, weight.numel(), dtype=torch.float32, device=weight.device).unsqueeze(0)
    expected = functional.rms_norm(x, x.shape[-1:], eps=_rms_epsilon(module)) * weight.to(torch.float32)
    actual = module(x.to(weight.dtype)).to(torch.float32)
    return torch.allclose(actual, expected, rtol=0.05, atol=0.02)
