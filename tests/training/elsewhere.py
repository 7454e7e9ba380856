"""A device that is not there: tensors that say that they are on it, and compute with real numbers in host memory.

What an accelerator may not be asked for is refused: float64 if it has none, an operator whose tensors are on two
devices, a conversion to or from float64 while numbers move, a generator of random numbers. It is noted where the host
waits for the device, and what the device computes.

Why no `FakeTensorMode`: a fake tensor has no numbers, and a step looks at some. Autograd also asks every device for a
guard, and a build of PyTorch for CPUs ends the process if there is none. `meta` has one: so PyTorch itself takes these
tensors for ones of `meta`, and everybody else sees the name of the device.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

import seedflood
from seedflood.training import models
from seedflood.training.seedflood import offloaded

CPU = torch.device("cpu")
HAVE_FLOAT64 = ("cpu", "cuda")
CODE = str(Path(seedflood.__file__).parent)
aten = torch.ops.aten

INDEXED = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)
"""Their indices may be in host memory."""

MOVES = (aten._to_copy.default, aten.copy_.default)
WAITS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default)
WITHOUT_DROPOUT = (
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
)
"""They are marked as random for their dropout, and there is none."""


class RefusedError(Exception):
    """What an accelerator may not be asked for."""


class Elsewhere(Tensor):
    """A tensor on a device that is not there. here: its numbers, in host memory. device: where it says it is."""

    here: Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, here: Tensor, place: torch.device) -> "Elsewhere":
        if here.dtype == torch.float64 and place.type not in HAVE_FLOAT64:
            raise RefusedError(f"float64 on {place}")
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=_stand_in(place),
        )
        made.here, made.place = here, place
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place

    @property
    def data(self) -> "Elsewhere":  # type: ignore[override]
        return self.detach()  # type: ignore[return-value]

    @data.setter
    def data(self, other: "Elsewhere") -> None:
        self.here = other.here

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    def to(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("copy"):
            return super().to(*args, **kwargs)
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        is_there = device is None or _whole(device) == self.place
        return self if is_there and dtype in (None, self.dtype) else super().to(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Elsewhere({self.here}, {self.place})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = Elsewhere(self.here.clone(), self.place)
        return nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied

    @classmethod
    def __torch_dispatch__(
        cls, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _compute(func, args, dict(kwargs or {}))


class Watch(TorchDispatchMode):
    """Within, tensors may be on devices that are not there. waits: how often each of our functions has waited for a
    number of a device. operators: what devices have computed. largest: the most floating-point numbers that went to a
    device at once."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.waits: Counter[str] = Counter()
        self.operators: set[OpOverload] = set()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not types and "device" not in kwargs:  # of tensors in host memory alone
            return func(*args, **kwargs)
        if types:
            self.operators.add(func)
            if _has_to_wait(func, args, kwargs):
                self.waits[_our_function()] += 1
        computed = _compute(func, args, kwargs)
        if not types and isinstance(computed, Elsewhere) and computed.is_floating_point():
            self.largest = max(self.largest, computed.numel())
        return computed


@contextmanager
def elsewhere() -> Iterator[Watch]:
    """Within, any device is there."""
    watch = Watch()
    swaps, lifts = torch.__future__.get_swap_module_params_on_conversion(), torch._C._only_lift_cpu_tensors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "find_device", lambda name: _whole(torch.device(name)))
        patch.setattr(offloaded, "memory_free", lambda _device: None)
        for module in (torch.cuda, torch.xpu):
            patch.setattr(module, "_lazy_init", lambda: None)
        patch.setattr(torch.inference_mode, "__enter__", _without_gradients)
        torch.__future__.set_swap_module_params_on_conversion(True)  # as usual, a parameter stays the same object
        torch._C._set_only_lift_cpu_tensors(True)  # else `torch.tensor` makes its numbers on the device itself
        try:
            with watch:
                yield watch
        finally:
            torch._C._set_only_lift_cpu_tensors(lifts)
            torch.__future__.set_swap_module_params_on_conversion(swaps)


_places: list[torch.device] = []
"""The devices so far; the index of a device of `meta` is the place in this list."""


def _stand_in(place: torch.device) -> torch.device:
    """What PyTorch takes a device for."""
    if place not in _places:
        _places.append(place)
    return torch.device("meta", _places.index(place))


def _whole(device: torch.device) -> torch.device:
    """With an index, and with the name that everybody sees."""
    if device.type == "meta":
        return _places[device.index]
    return device if device.type == "cpu" or device.index is not None else torch.device(device.type, 0)


def _compute(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Computes in host memory, and says that the result is on the device. Raises RefusedError."""
    given = tensors_in(args, *kwargs.values())
    places = {one.place for one in given if isinstance(one, Elsewhere)}
    asked = kwargs.get("device")
    target = next(iter(places), CPU) if asked is None else _whole(torch.device(asked))
    if places or target != CPU:
        _check(func, args, kwargs, given, places | {target}, target)
    own_args = with_tensors(_here, args)
    own_kwargs = {name: with_tensors(_here, one) for name, one in kwargs.items()}
    if asked is not None:
        own_kwargs["device"] = CPU
    made = func(*own_args, **own_kwargs)
    if target == CPU:
        return made
    if func is aten.copy_.default and not isinstance(args[0], Elsewhere):
        return args[0]
    made = with_tensors(lambda one: Elsewhere(one, target), made)
    return return_and_correct_aliasing(func, args, kwargs, made)


def _here(tensor: Tensor) -> Tensor:
    return tensor.here if isinstance(tensor, Elsewhere) else tensor


def tensors_in(*values: Any) -> list[Tensor]:
    """Those of arguments, and of lists among these. Much faster than what PyTorch has for trees of any kind."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list) and value:
            found += tensors_in(*value)
    return found


def with_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same, with another tensor in place of each."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)([with_tensors(change, one) for one in value])
    return value


def _check(
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: list[Tensor],
    places: set[torch.device],
    target: torch.device,
) -> None:
    """Raises RefusedError for what an accelerator may not be asked for. given: all tensors of the arguments."""
    if torch.Tag.nondeterministic_seeded in func.tags and func not in WITHOUT_DROPOUT:
        raise RefusedError(f"{func} draws on {target}")
    if func in MOVES:
        _check_move(func, args, kwargs, target)
        return
    if len(places) > 1:
        raise RefusedError(f"{func} of tensors on {places}, for {target}")
    indices = tensors_in(args[1]) if func in INDEXED else []
    for one in given:
        if isinstance(one, Elsewhere):
            continue
        is_number = one.dim() == 0 and one.dtype != torch.float64
        if not is_number and not any(one is index for index in indices):
            raise RefusedError(f"{func} of tensors on {target} and in host memory")


def _check_move(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], target: torch.device) -> None:
    """A device does not have to convert a type that it lacks while numbers move."""
    is_copy = func is aten.copy_.default
    source, there = (args[1], args[0].device) if is_copy else (args[0], target)
    dtypes = {source.dtype, args[0].dtype if is_copy else kwargs.get("dtype") or source.dtype}
    moves, have_it = source.device != there, {source.device.type, there.type} <= set(HAVE_FLOAT64)
    if moves and not have_it and len(dtypes) > 1 and torch.float64 in dtypes:
        raise RefusedError(f"{func} converts {dtypes} while it moves from {source.device} to {there}")


def _has_to_wait(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Has the host to wait for a number of the device?"""
    if func in INDEXED:
        return any(isinstance(one, Elsewhere) and one.dtype == torch.bool for one in tensors_in(args[1]))
    if func is aten._to_copy.default:
        return kwargs.get("device") is not None and torch.device(kwargs["device"]) == CPU
    if func is aten.copy_.default:
        return not isinstance(args[0], Elsewhere)
    return func in WAITS


def _our_function() -> str:
    """Module and name of the function of ours that has called PyTorch."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(CODE):
        frame = frame.f_back
    return "a test" if frame is None else f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


def _without_gradients(mode: Any) -> None:
    """In place of inference mode, which tensors like ours do not have."""
    mode._inference_mode_context = torch.no_grad()
    mode._inference_mode_context.__enter__()
