"""The live layers: modules that compute with `W + U A V^T` and leave `W` as it is.

A module of a known kind changes its class to a live one that inherits from its own. So names, parameters, hooks and the
logic of embeddings (the offset of OPT's positions, the scale of Gemma's tokens) stay. Kinds are known by what a module
computes, not by the name of its class: see `_live_kind`. It then computes

    y = x W^T + (x V) (A^T U^T)          A = -(learning_rate / clients) C 2^-20

During a probe there are several A, one per *variant* of the parameters, and the batch is there once per variant, one
copy below the other. The two-point estimate has two variants: one entry of every A differs by +epsilon in one and by
-epsilon in the other. So one forward pass gives all losses of an estimate and shares the base product, and nothing of
the size of a weight matrix is written. Products take their factors in the model's dtype and add up in float32; what a
norm multiplies with is near 1, where half precision would lose the increments, so norms compute in float32.

Classification reads the model at one position per row. Products of the last layer that feed only their own position are
computed there alone (`skipping`). These are all but its keys and values, 7 % of OPT-125M's work.

Shapes: P variants (1 without a probe), N positions (all leading dimensions of an input, flattened; P equal blocks), M
rows and K columns of a stored weight, R rank, F all coefficients (subspace.py). U is (M, R) and V is (K, R), whatever
the module does with W.
"""

import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from seedflood.errors import ModelError
from seedflood.training.causal import CausalModel
from seedflood.training.models import distinct_parameters, is_mixture
from seedflood.training.seedflood.slots import ALL, Live, LiveSlot
from seedflood.training.seedflood.stored import StoredMatrix
from seedflood.training.seedflood.subspace import Slot, SlotBasis, in_order


class LiveModule(nn.Module):
    """What live modules have in common. own_class: the one that the module had. slots: of its own parameters, by their
    names in the module."""

    own_class: type[nn.Module]
    slots: dict[str, LiveSlot]
    live: Live
    is_skippable = False
    """Does each position of the output feed only that position of the model's output?"""

    def repeated(self, x: Tensor, features: int) -> Tensor:
        """Expands x so that its leading dimensions hold one equal block per variant.

        features: trailing dimensions that are no positions (0 for indices). Inputs that all rows share, such as
        position ids of shape (1, T) or (T,), are expanded. Raises ModelError for a shape that is ambiguous.
        """
        probe = self.live.probe
        if probe is None:
            return x
        leading = x.shape[: x.dim() - features]
        if leading == (probe.rows * probe.length,):
            return x
        if leading == (probe.length,) and features == 0:
            return x.expand(probe.rows, *x.shape)
        if leading[:1] == (probe.rows,):
            return x
        if leading[:1] == (1,):
            return x.expand(probe.rows, *x.shape[1:])
        raise ModelError(
            f"{self.own_class.__name__} was given an input of shape {tuple(x.shape)} in a batch of {probe.rows} "
            f"rows of {probe.length} tokens, and which rows it belongs to cannot be told: this model cannot be trained."
        )

    def live_bias(self, index: Tensor | slice = ALL) -> Tensor | None:
        """Of each variant, or some entries of it: (P, M)."""
        slot = self.slots.get("bias")
        return None if slot is None else slot.vectors() if index is ALL else slot.vectors()[:, index]


def add_increment(y_NM: Tensor, outer_NR: Tensor, basis_MR: Tensor) -> Tensor:
    """`y + outer basis^T`, the sum in float32, the result in the dtype of y (in place if that is float32)."""
    if y_NM.dtype == torch.float32:
        return y_NM.addmm_(outer_NR.to(torch.float32), basis_MR.T)  # half precision comes under autocast
    return torch.addmm(y_NM.to(torch.float32), outer_NR, basis_MR.T).to(y_NM.dtype)


def thin_product(bias_PM: Tensor | None, inner_PNR: Tensor, factor_PRM: Tensor) -> Tensor:
    """`bias + inner factor` of each variant, (P * N, M)."""
    if len(inner_PNR) == 1:  # of two dimensions: autograd would copy a view that is written to
        inner_NR, factor_RM = inner_PNR.squeeze(0), factor_PRM.squeeze(0)
        return inner_NR @ factor_RM if bias_PM is None else torch.addmm(bias_PM, inner_NR, factor_RM)
    if bias_PM is None:
        return torch.bmm(inner_PNR, factor_PRM).flatten(0, 1)
    return torch.baddbmm(bias_PM.unsqueeze(1), inner_PNR, factor_PRM).flatten(0, 1)


class LiveProduct(LiveModule):
    """A product with a stored matrix, at all positions or only where an answer is read. side: see `LiveSlot`."""

    side: Literal["u", "v"]

    def product(self, x_NY: Tensor, index: Tensor | slice = ALL) -> Tensor:
        """The output at these positions, which are as many of each variant. index: of the outputs that are wanted, at
        no more than their own cost."""
        slot = self.slots["weight"]
        return slot.add_product(thin_product(self.live_bias(index), *slot.outer(x_NY, index)), x_NY, index)

    def forward(self, x: Tensor) -> Tensor:
        x = self.repeated(x, features=1)
        x_NY = x.reshape(-1, x.shape[-1])
        answer_N = self.live.probe.answer_N if self.is_skippable and self.live.probe is not None else None
        if answer_N is None:
            return self.product(x_NY).view(*x.shape[:-1], -1)
        answer_NX = self.product(x_NY[answer_N])
        y_NX = answer_NX.new_full((len(x_NY), answer_NX.shape[1]), self.live.filler)
        return y_NX.index_copy_(0, answer_N, answer_NX).view(*x.shape[:-1], -1)


class LiveLinear(LiveProduct, nn.Linear):
    """nn.Linear: the weight is (out, in)."""

    side = "u"


class LiveConv1D(LiveProduct, Conv1D):
    """transformers' Conv1D (GPT-2): the weight is (in, out)."""

    side = "v"


class LiveEmbedding(LiveModule, nn.Embedding):
    """nn.Embedding: the weight is (tokens, width). Subclasses reach this forward by their `super().forward`."""

    def forward(self, input: Tensor) -> Tensor:
        index = self.repeated(input, features=0)
        index_N = index.reshape(-1)
        slot = self.slots["weight"]
        assert slot.basis.v_NR is not None
        y_NK = add_increment(slot.lookup(index_N), slot.looked_up(index_N), slot.basis.v_NR)
        return y_NK.view(*index.shape, -1)


class NormForm(NamedTuple):
    """`(offset + weight) * normed(x) + bias`. Normed: divided by the root mean square of the last dimension, after its
    mean was taken away if `is_centred`."""

    is_centred: bool
    epsilon: float | None
    offset: float = 0.0

    def normed(self, x: Tensor, weight_K: Tensor | None = None, bias_K: Tensor | None = None) -> Tensor:
        """In float32. weight_K: with the offset."""
        x, shape = x.to(torch.float32), x.shape[-1:]
        if self.is_centred:
            return functional.layer_norm(x, shape, weight_K, bias_K, self.epsilon or 0.0)
        y = functional.rms_norm(x, shape, weight_K, self.epsilon)
        return y if bias_K is None else y + bias_K


class LiveNorm(LiveModule):
    """LayerNorm or RMSNorm over the last dimension, with or without bias; Gemma adds an offset of 1 to its weights."""

    form: NormForm

    def forward(self, x: Tensor) -> Tensor:
        x = self.repeated(x, features=1)
        scale_PK, bias_PK = self.slots["weight"].vectors(), self.live_bias()
        if self.form.offset:
            scale_PK = scale_PK + self.form.offset
        if len(scale_PK) == 1:
            return self.form.normed(x, scale_PK.squeeze(0), None if bias_PK is None else bias_PK.squeeze(0)).to(x.dtype)
        y_PNK, scale_P1K = self.form.normed(x).view(len(scale_PK), -1, x.shape[-1]), scale_PK.unsqueeze(1)
        y_PNK = y_PNK * scale_P1K if bias_PK is None else torch.addcmul(bias_PK.unsqueeze(1), y_PNK, scale_P1K)
        return y_PNK.view(x.shape).to(x.dtype)


class LiveModel(CausalModel):
    """A causal language model of live modules."""

    def logits(self, hidden: Tensor) -> Tensor:
        """At any positions, as many of each variant and one variant after the other."""
        head: LiveLinear = self.module.get_output_embeddings()
        logits_NV = head.product(hidden.flatten(0, -2))
        return self._finished(logits_NV.view(*hidden.shape[:-1], logits_NV.shape[-1]))

    def word_logits(self, hidden_BD: Tensor, word_L: Tensor) -> Tensor:
        """The logits of some tokens alone, (B, L). OPT-125M's whole vocabulary would be 7 % of an estimate."""
        head: LiveLinear = self.module.get_output_embeddings()
        return self._finished(head.product(hidden_BD, word_L))


def attach(model: nn.Module) -> tuple[Live, list[LiveSlot]]:
    """Makes the modules of a model live. Returns what they share, and the slots in their order.

    All parameters are trained; in a mixture of experts, those of the kinds that are known. Raises ModelError, naming
    class and parameter, if one belongs to a module of an unsupported kind; the model is then unchanged.
    """
    kinds, live = dict(_live_kinds(model)), Live()
    trained = {id(parameter) for module in kinds for parameter in _own_parameters(module).values()}
    parameters = {name: one for name, one in distinct_parameters(model) if id(one) in trained}
    words = model.get_input_embeddings().weight if isinstance(model, PreTrainedModel) else None
    named = in_order(Slot(name, tuple(one.shape), one is words) for name, one in parameters.items())
    slots = [LiveSlot(slot, parameters[slot.name], live) for slot in named]
    by_parameter = {id(slot.parameter): slot for slot in slots}
    for module, kind in kinds.items():
        own = {name: by_parameter[id(parameter)] for name, parameter in _own_parameters(module).items()}
        _make_live(module, kind, live, own)
    model.requires_grad_(False)
    return live, slots


def detach(model: nn.Module) -> None:
    """Gives the modules of a live model their own classes again. The weights stay as they are."""
    for module in model.modules():
        if isinstance(module, LiveModule):
            module.__class__ = module.own_class  # type: ignore[assignment]
            for name in ("live", "slots", "form", "is_skippable"):
                module.__dict__.pop(name, None)


def store_slot(model: nn.Module, slot: LiveSlot, stored: StoredMatrix) -> None:
    """Puts something else in the place of a matrix of a live model, and frees the parameter."""
    slot.stored = stored
    slot.parameter = nn.Parameter(torch.empty(0), requires_grad=False)
    for module in model.modules():
        if isinstance(module, LiveModule) and module.slots.get("weight") is slot:
            del module.weight
            module.weight = stored  # type: ignore[assignment]  # for whoever asks for its shape


def _live_kinds(model: nn.Module) -> Iterator[tuple[nn.Module, type[LiveModule]]]:
    """The modules that can be made live, each with its live class. Raises ModelError if others have parameters and are
    no part of a mixture of experts: these stay as they are."""
    has_experts = is_mixture(model)
    for path, module in model.named_modules():
        if not (parameters := _own_parameters(module)):
            continue
        if (kind := _live_kind(module)) is not None:
            yield module, kind
        elif not has_experts:
            names = ", ".join(f"{path}.{name}".lstrip(".") for name in parameters)
            raise ModelError(
                f"Cannot train {names}: modules of class {type(module).__name__} are not supported (linear layers, "
                "embeddings, and norms with or without a mean and an offset are): choose a model of a family in "
                "docs/reference/models.md."
            )


def _own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters(recurse=False))


def _make_live(module: nn.Module, kind: type[LiveModule], live: Live, slots: dict[str, LiveSlot]) -> None:
    """Gives a module a class that is both: the live forward comes first, except for a subclass of an embedding, whose
    own forward calls it."""
    own, form = type(module), _norm_form(module) if kind is LiveNorm else None
    bases: tuple[type, ...] = (kind,) if issubclass(kind, own) else (kind, own)
    if kind is LiveEmbedding and own is not nn.Embedding:
        bases = (own, kind)
    module.__class__ = type(f"Live{own.__name__}", bases, {"own_class": own})
    assert isinstance(module, LiveModule)
    module.live, module.slots = live, slots
    if isinstance(module, LiveProduct):
        slots["weight"].side = module.side
    if isinstance(module, LiveNorm):
        assert form is not None
        module.form = form
        for slot in slots.values():
            slot.is_of_norm = True


def _live_kind(module: nn.Module) -> type[LiveModule] | None:
    """The live class that computes what this module does. Subclasses and norms are tried out."""
    kinds: tuple[tuple[type[nn.Module], type[LiveModule]], ...] = (
        (nn.Linear, LiveLinear),
        (Conv1D, LiveConv1D),
        (nn.Embedding, LiveEmbedding),
    )
    for known, kind in kinds:
        if isinstance(module, known):
            is_known = type(module).forward is known.forward and getattr(module, "max_norm", None) is None
            return kind if is_known or _computes_as(module, kind) else None
    return LiveNorm if _norm_form(module) is not None else None


@torch.no_grad()
def _computes_as(module: Any, kind: type[LiveModule]) -> bool:
    """Does a module compute with other parameters what it computes live, with the difference as increments? Tried on a
    copy with a small weight (M = 8, K = 6, R = 2)."""
    u_MR, v_KR = (torch.linspace(1, 2, rows * 2).cos().view(rows, 2) for rows in (8, 6))
    live, slots, changed = Live(), {}, {}
    live.a_PF = torch.linspace(-1, 1, 6).unsqueeze(0)
    for name, parameter in _own_parameters(module).items():
        slot = Slot(name, (8, 6)[: parameter.dim()])
        slots[name] = LiveSlot(
            slot, nn.Parameter(torch.linspace(1, 48, math.prod(slot.shape)).sin().view(slot.shape)), live
        )
        slots[name].bind(SlotBasis(u_MR, v_KR), slice(0, 4) if slot.is_matrix else slice(4, 6))
        product_RX = slots[name].a[0] @ v_KR.T if slot.is_matrix else slots[name].a[0]
        changed[name] = nn.Parameter(slots[name].parameter + u_MR @ product_RX)
    x = torch.ones(1, 2, dtype=torch.int64) if kind is LiveEmbedding else torch.linspace(-1, 1, 12).view(1, 2, 6)
    try:
        trial, other = _small(module, {name: slot.parameter for name, slot in slots.items()}), _small(module, changed)
        expected = other(x)
        _make_live(trial, kind, live, slots)
        return torch.allclose(trial(x), expected, rtol=1e-4, atol=1e-5)
    except Exception:  # a forward of its own may want anything
        return False


def _small(module: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Any:
    """A copy of a module in host memory, with other parameters."""
    shell: Any = copy.copy(module)
    shell.__dict__["_parameters"] = {**module._parameters, **parameters}
    small = copy.deepcopy(shell).to("cpu")
    small.padding_idx = None
    return small


@torch.no_grad()
def _norm_form(module: nn.Module) -> NormForm | None:
    """What a norm computes; None if this is no norm of a known form. Tried on a copy in float32."""
    names = set(_own_parameters(module))
    takes = inspect.signature(type(module).forward).parameters
    if "weight" not in names or names - {"weight", "bias"} or module.get_parameter("weight").dim() != 1:
        return None
    if len(takes) != 2 or module._modules:
        return None
    trial = copy.deepcopy(module).to("cpu", torch.float32)
    weight = trial.get_parameter("weight")
    x_NK = torch.linspace(-3, 4, 4 * len(weight)).view(4, -1).sin() * torch.tensor([[1e-2], [0.1], [1.0], [10.0]])
    epsilon = next((getattr(module, name) for name in ("variance_epsilon", "eps") if hasattr(module, name)), None)
    values = [torch.zeros_like(weight), torch.linspace(0.5, 1.5, len(weight))]
    for parameter in trial.parameters():
        parameter.copy_(values[1])
    try:
        shifted_NK = trial(x_NK)
        weight.copy_(values[0])
        plain_NK = trial(x_NK)
    except Exception:
        return None
    bias_K = values[1] if "bias" in names else values[0]
    for is_centred in (False, True):
        normed_NK = NormForm(is_centred, epsilon).normed(x_NK)
        offset = round(float(((plain_NK - bias_K) * normed_NK).sum() / normed_NK.square().sum()), 4)
        expected = [normed_NK * (value_K + offset) + bias_K for value_K in values]
        if all(
            torch.allclose(*pair, rtol=1e-3, atol=1e-4) for pair in zip((plain_NK, shifted_NK), expected, strict=True)
        ):
            return NormForm(is_centred, epsilon, offset)
    return None
