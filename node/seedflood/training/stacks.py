"""The layers of a transformer, and gradient checkpointing: what a layer keeps for the backward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def layers_of(model: nn.Module) -> Sequence[nn.Module]:
    """The layers of a model: its longest list of modules, or none if it has no list."""
    stacks = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(stacks, key=len, default=[])


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Within, these layers keep only their inputs, and are computed again in the backward pass."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # that of its class comes back
