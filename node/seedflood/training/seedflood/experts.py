"""Experts of a mixture that the device does not hold as they were loaded: they have few bits (`quantised`), lie in host
memory (`offloaded`), or are shared among ranks (`sharded`).

No step changes an expert, so a host only computes with them. Their module fetches them, computes, and lets go of them.
The backward pass lets the module compute once more, instead of keeping what it fetched. So the device needs room for
the experts of one layer at a time.

Shapes: E experts of X rows and Y columns each. They are stored as one matrix of E * X rows.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seedflood.training.models import expert_modules
from seedflood.training.seedflood.stored import StoredMatrix


class ExpertTensor:
    """A tensor of a module of experts: a parameter, until `store` puts something else in its place.

    name: of the parameter in the model.
    """

    def __init__(self, module: nn.Module, path: str, attribute: str) -> None:
        self.name = f"{path}.{attribute}"
        self.shape = module.get_parameter(attribute).shape
        """(E, X, Y)."""
        self.stored: StoredMatrix | None = None
        self._module = module
        self._attribute = attribute

    @property
    def weight(self) -> Tensor:
        """(E * X, Y). Only while nothing else is stored."""
        return self._module.get_parameter(self._attribute).detach().flatten(0, 1)

    def store(self, stored: StoredMatrix) -> None:
        """Frees the parameter."""
        self.stored = stored
        delattr(self._module, self._attribute)
        _make_fetching(self._module).tensors[self._attribute] = self

    def fetch(self) -> Tensor:
        """(E, X, Y), on the device."""
        assert self.stored is not None
        matrix = torch.empty(self.stored.shape, dtype=self.stored.dtype, device=self.stored.device)
        for rows, part in self.stored.base_rows():
            matrix[rows] = part
        return matrix.view(self.shape)


def find_experts(model: nn.Module) -> list[ExpertTensor]:
    """Of a mixture whose experts lie side by side in one tensor; in the same order on all hosts."""
    return [
        ExpertTensor(module, path, attribute)
        for path, module, tensors in expert_modules(model)
        for attribute in tensors
    ]


class FetchingModule(nn.Module):
    """A module that has its experts only while it computes. tensors: what it fetches, by attribute."""

    tensors: dict[str, ExpertTensor]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        is_slope_wanted = any(isinstance(one, Tensor) and one.requires_grad for one in given)
        if not (is_slope_wanted and torch.is_grad_enabled()):
            return self._compute(*args, **kwargs)

        def compute(*again: Any) -> Any:
            return self._compute(*again[: len(args)], **dict(zip(kwargs, again[len(args) :], strict=True)))

        # The other kind of checkpoint would hide what is computed here from checkpoints around it.
        return checkpoint(compute, *given, use_reentrant=True, preserve_rng_state=False)

    def _compute(self, *args: Any, **kwargs: Any) -> Any:
        try:
            for attribute, tensor in self.tensors.items():
                self.__dict__[attribute] = tensor.fetch()
            return super().forward(*args, **kwargs)
        finally:
            for attribute in self.tensors:
                self.__dict__.pop(attribute, None)


def _make_fetching(module: nn.Module) -> FetchingModule:
    """Gives a module a class that fetches what its own class computes with."""
    if not isinstance(module, FetchingModule):
        own = type(module)
        module.__class__ = type(f"Fetching{own.__name__}", (FetchingModule, own), {})
        assert isinstance(module, FetchingModule)
        module.tensors = {}
    return module
