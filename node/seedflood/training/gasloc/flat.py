"""All parameters of a model as one contiguous float32 tensor, of which the parameters themselves are views.

So an outer step, an exchange and the clipping of a gradient are a few operations on one tensor, and parameters are sent
without a copy. Matrices come first, in the order of their names, then all others (norms and biases, which have no
weight decay), so an optimiser sees two tensors. A parameter begins at a multiple of 16 numbers; the padding between is
zero, and every element-wise operation leaves it zero.

Shapes: F numbers of a flat tensor, padding included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seedflood.training.models import distinct_parameters

ALIGNMENT = 16
"""In numbers. It is 64 bytes: a cache line, and what a GPU reads at once."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The place of a parameter in a flat tensor."""

    name: str
    start: int
    shape: torch.Size

    @property
    def end(self) -> int:
        return self.start + self.shape.numel()


@dataclass(frozen=True, slots=True)
class Layout:
    """places: of every distinct parameter, in order. decaying: how many numbers the matrices take; all others
    follow."""

    places: tuple[Slice, ...]
    decaying: int
    size: int

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        matrices_first = sorted(distinct_parameters(module), key=lambda named: named[1].dim() <= 1)
        places, end, decaying = [], 0, 0
        for name, parameter in matrices_first:
            places.append(Slice(name, end, parameter.shape))
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
            if parameter.dim() > 1:
                decaying = end
        return cls(tuple(places), decaying, end)

    def view(self, flat_F: Tensor, place: Slice) -> Tensor:
        return flat_F[place.start : place.end].view(place.shape)

    def views(self, flat_F: Tensor) -> dict[str, Tensor]:
        return {place.name: self.view(flat_F, place) for place in self.places}


class FlatModel:
    """A model whose parameters are moved into one tensor, and their gradients into another.

    values_F, gradients_F: float32, on the model's device. What is written there is what the model computes with.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.layout = Layout.of(module)
        parameters = dict(distinct_parameters(module))
        device = next(iter(parameters.values())).device
        self.values_F = torch.zeros(self.layout.size, dtype=torch.float32, device=device)
        self.gradients_F = torch.zeros_like(self.values_F)
        for place in self.layout.places:
            parameter = parameters[place.name]
            value = self.layout.view(self.values_F, place)
            with torch.no_grad():
                value.copy_(parameter)
            parameter.data = value
            parameter.requires_grad_(True)
            parameter.grad = self.layout.view(self.gradients_F, place)
        self._names = {id(parameter): name for name, parameter in parameters.items()}

    def groups(self) -> tuple[nn.Parameter, nn.Parameter]:
        """The matrices as one parameter, and all others as another: views with their gradients, for an optimiser."""
        cut = self.layout.decaying
        return self._group(slice(0, cut)), self._group(slice(cut, self.layout.size))

    def weights(self) -> dict[str, Tensor]:
        """Copies of the weights in host memory, under all names of each parameter."""
        views = self.layout.views(self.values_F)
        copies = {name: view.detach().to("cpu", copy=True) for name, view in views.items()}
        named = self.module.named_parameters(remove_duplicate=False)
        return {name: copies[self._names[id(parameter)]] for name, parameter in named}

    def _group(self, part: slice) -> nn.Parameter:
        group = nn.Parameter(self.values_F[part])
        group.grad = self.gradients_F[part]
        return group
