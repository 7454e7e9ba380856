"""Checkpoints: everything that a worker needs to resume bit by bit, as arrays, and facts that say what they are.

Arrays: `values` (the parameters, flat), `optimiser.GROUP.NAME` of the optimiser's state, and of the outer step
`anchor`, `previous` and `residual`, where they exist. Flat arrays of the same layout, so saving copies nothing but what
is not in host memory; whoever wants weights by name exports a model. They may be saved between any two local steps, but
not during an exchange. `reach` has two numbers of each tensor; where it is missing, it begins anew.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedflood.training.gasloc.outer import Outer
from seedflood.training.gasloc.worker import Worker

Arrays = dict[str, NDArray[Any]]
Facts = dict[str, str]

_OPTIMISER = "optimiser."
_REACH, _RESIDUAL = "reach", "residual"


def save(worker: Worker, outer: Outer) -> tuple[Arrays, Facts]:
    """The present state. The arrays are views: write or copy them before the next step changes them."""
    assert outer.offer is None, "a checkpoint holds whole rounds"
    tensors = {"values": worker.flat.values_F}
    numbers: dict[str, Any] = {}
    for group, state in worker.optimiser.state_dict()["state"].items():
        for name, value in state.items():
            key = f"{_OPTIMISER}{group}.{name}"
            if isinstance(value, Tensor):
                tensors[key] = value
            else:
                numbers[key] = value
    tensors |= _outer_tensors(outer)
    if outer.reach is not None:
        tensors[_REACH] = outer.reach.squares_2T
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    facts = _identity(worker, outer) | {
        "step": str(worker.step),
        "round": str(outer.round),
        "numbers": json.dumps(numbers, sort_keys=True),
    }
    return arrays, facts


def is_restorable(worker: Worker, outer: Outer, facts: Mapping[str, str]) -> bool:
    """Does a checkpoint with these facts fit this model, this optimiser and this outer step?"""
    return all(facts.get(name) == value for name, value in _identity(worker, outer).items())


def from_another(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str]) -> tuple[Arrays, Facts]:
    """What of a checkpoint may come from another host. The state of an optimiser may not: no limit on its numbers keeps
    the next step small, and a few steps make it anew. Nor may what says how far others may pull us: the reach, and what
    another host has left out of its offers."""
    kept = {name: array for name, array in arrays.items() if not name.startswith(_OPTIMISER) and name != _REACH}
    if _RESIDUAL in kept:
        kept[_RESIDUAL] = numpy.zeros_like(kept[_RESIDUAL])
    return kept, {**facts, "numbers": "{}"}


def is_within(arrays: Mapping[str, NDArray[Any]], norm_max: float) -> bool:
    """Is the norm of each of these arrays less than that? Those of a neighbour may be anything; with a number that is
    not finite in it, an array has no such norm."""
    return all(float(torch.linalg.vector_norm(_floats(array))) < norm_max for array in arrays.values())


@torch.no_grad()
def restore(worker: Worker, outer: Outer, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str]) -> None:
    """Resumes from a checkpoint of any host. Raises ValueError, and changes nothing, if it does not fit.

    An optimiser's state is taken as it is: it is never anyone's but our own, under the checksum of its file.
    """
    if not is_restorable(worker, outer, facts):
        raise ValueError("the checkpoint was made with another model, optimiser or outer step")
    step, round_, numbers = int(facts["step"]), int(facts["round"]), json.loads(facts["numbers"])
    targets = {"values": worker.flat.values_F} | _outer_tensors(outer)
    for name, target in targets.items():
        array = arrays.get(name)
        if array is None or array.shape != tuple(target.shape) or array.dtype != _array(target).dtype:
            raise ValueError(f"the checkpoint does not hold {name} in the form that is needed here")
    state: dict[int, dict[str, Any]] = {}
    optimiser = {name: _tensor(array) for name, array in arrays.items() if name.startswith(_OPTIMISER)}
    for key, value in (optimiser | numbers).items():
        group, _, name = key.removeprefix(_OPTIMISER).partition(".")
        state.setdefault(int(group), {})[name] = value
    worker.optimiser.load_state_dict({"state": state, "param_groups": worker.optimiser.state_dict()["param_groups"]})
    for name, target in targets.items():
        target.copy_(_tensor(arrays[name], target.dtype))
    worker.step = step
    if outer.reach is not None:
        outer.reach.squares_2T = _reach(outer.reach.squares_2T, arrays.get(_REACH))
    outer.resume(round_)


def _reach(ours_2T: Tensor, saved_2T: NDArray[Any] | None) -> Tensor:
    """The saved one, if it has the form of ours; else zeros."""
    if saved_2T is None or saved_2T.shape != tuple(ours_2T.shape) or saved_2T.dtype != numpy.float64:
        return torch.zeros_like(ours_2T)
    return _tensor(saved_2T)


def _floats(array: NDArray[Any]) -> Tensor:
    """As float32, also if they are bfloat16."""
    return _tensor(array, torch.bfloat16 if array.dtype == numpy.int16 else None).float()


def _outer_tensors(outer: Outer) -> dict[str, Tensor]:
    found = {"anchor": outer.anchor_F, "previous": outer.previous_F, _RESIDUAL: outer.residual_F}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _identity(worker: Worker, outer: Outer) -> Facts:
    """Facts that must be equal for two workers to use each other's checkpoints."""
    places = json.dumps([(place.name, place.start, list(place.shape)) for place in worker.flat.layout.places])
    return {
        "layout": hashlib.sha256(b"seedflood layout 1\0" + places.encode()).hexdigest(),
        "optimiser": worker.settings.optimiser,
        "outer": ",".join(sorted(_outer_tensors(outer))),
    }


def _array(tensor: Tensor) -> NDArray[Any]:
    """A view in host memory. NumPy has no bfloat16, so such a tensor becomes int16 with the same bits."""
    tensor = tensor.detach().cpu()
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    array: NDArray[Any] = bits.numpy()
    return array


def _tensor(array: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
    """A copy."""
    tensor = torch.from_numpy(numpy.array(array))
    return tensor.view(torch.bfloat16) if dtype == torch.bfloat16 else tensor
