"""The device on which a host computes: its CPU, or any accelerator that this torch knows (`torch.accelerator`).

What all hosts must have alike is made of integers or in host memory, so an accelerator needs neither float64 nor a
generator of random numbers. Where float64 only makes sums of what this host has measured better, it is computed on the
device if that has it, and else in host memory.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from rich.filesize import decimal
from torch import Tensor

from seedflood.errors import ModelError

EXACT = ("cpu", "cuda")
"""What has float64, and integers of 64 bits that are known to wrap as on a CPU. Metal (`mps`) has no float64, nor have
many GPUs of Intel (`xpu`); those of AMD are `cuda` to torch. With other integers a host would have another subspace
than all others, and nobody would see it."""


def usual_device(rank: int) -> str:
    """The accelerator of this machine, or "cpu" if there is none. rank: of this process among those that one command
    has started; they take the devices in turn."""
    kind = _accelerator()
    if kind is None:
        return "cpu"
    index = rank % torch.accelerator.device_count()
    return f"{kind}:{index}" if index else kind


def find_device(name: str) -> torch.device:
    """The device of this name, with its index. Raises ModelError, naming those that are there, if this machine or this
    torch lacks it."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return torch.device(kind)
    count = torch.accelerator.device_count() if kind == _accelerator() else 0
    if int(index or 0) >= count:
        there = ", ".join(f'"{one}"' for one in device_names())
        raise ModelError(
            f'torch {torch.__version__} finds no device "{name}" on this machine, but {there}: name one of these in '
            "[node] device, or install the build of torch for that one."
        )
    return torch.device(kind, int(index or 0))


def device_names() -> list[str]:
    """Of all devices that this torch finds on this machine."""
    kind = _accelerator()
    count = 0 if kind is None else torch.accelerator.device_count()
    return ["cpu", *(f"{kind}:{index}" for index in range(count))]


def _accelerator() -> str | None:
    """The type of the accelerators of this machine: torch is built for one type."""
    if not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else found.type


def usual_dtype(device: torch.device) -> torch.dtype:
    """The type of the weights unless a host says another one."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    # float32 copies of half-precision weights stay in host memory. On `mps` that is the memory of the device, too, so
    # half precision would take more of it.
    if device.type in ("cpu", "mps"):
        return torch.float32
    has_bfloat16 = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    return torch.bfloat16 if has_bfloat16 is not None and has_bfloat16() else torch.float32


def exact_device(device: torch.device | str) -> torch.device:
    """Where float64, and the random integers of the run, are computed for a device: on it, or in host memory."""
    device = torch.device(device)
    return device if device.type in EXACT else torch.device("cpu")


def to_float64(tensor: Tensor) -> Tensor:
    """In float64, on the `exact_device` of its device; gradients flow through it."""
    return tensor.to(exact_device(tensor.device)).to(torch.float64)  # moved first: no other device shall convert it


def vector_norm(values: Tensor) -> float:
    """The Euclidean norm, added up in float64 where the device has it."""
    dtype = torch.float64 if values.device.type in EXACT else torch.float32
    return float(torch.linalg.vector_norm(values, dtype=dtype))


def same_draws(device: torch.device, *, enabled: bool = True) -> AbstractContextManager[None]:
    """Afterwards the generators of the CPU and of the device are as they were: what follows draws the same numbers."""
    if device.type == "cpu":
        return torch.random.fork_rng([], enabled=enabled)
    return torch.random.fork_rng([device], enabled=enabled, device_type=device.type)


def autocast(device: torch.device, *, enabled: bool) -> AbstractContextManager[Any]:
    """Within, products are computed in bfloat16, or in the type of their factors whatever a script has said; on a
    device that has no autocast they are so anyway."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def describe(device: torch.device, dtype: str) -> str:
    """For people: what computes, in which type, and what it has taken of its memory so far."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"cpu, {threads} thread{'s' * (threads > 1)}, {dtype}"
    name_of = getattr(torch.get_device_module(device), "get_device_name", None)
    text = f"{device}, {dtype}" if name_of is None else f"{device} ({name_of(device)}), {dtype}"
    if (taken := memory_taken(device)) is not None:
        text += f"; a step takes {decimal(taken[0])} of its {decimal(taken[1])}"
    return text


def memory_free(device: torch.device) -> int | None:
    """How many bytes this process can still take on an accelerator. None: its memory is that of the host, or this torch
    does not tell."""
    if device.type in ("cpu", "mps"):
        return None
    try:
        if getattr(torch.get_device_module(device).get_device_properties(device), "is_integrated", False):
            return None
        module = torch.get_device_module(device)
        unused = module.memory_reserved(device) - module.memory_allocated(device)  # torch keeps it for this process
        return int(module.mem_get_info(device)[0]) + int(unused)
    except (AttributeError, RuntimeError):
        return None


def memory_taken(device: torch.device) -> tuple[int, int] | None:
    """The most bytes that tensors of this process have taken on an accelerator so far, and how many it has. None: this
    torch does not tell."""
    try:
        if device.type == "mps":  # it tells no peak: what torch holds is near it
            return torch.mps.driver_allocated_memory(), torch.mps.recommended_max_memory()
        return torch.accelerator.max_memory_allocated(device), torch.accelerator.get_memory_info(device)[1]
    except (AttributeError, RuntimeError):  # an older torch, or a device without such numbers
        return None
