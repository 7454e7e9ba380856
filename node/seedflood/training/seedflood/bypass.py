"""Models that compute with a parameter of a live module beside it: what a run changes would not reach that place.

Jamba's mixers do so: they add the bias of `dt_proj` by themselves. Live modules compute with their slots, so whatever
the attributes of a module hold does not matter to them. While these are no numbers, the output must still be numbers.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from seedflood.errors import ModelError
from seedflood.training.causal import CausalModel
from seedflood.training.hub import first_line
from seedflood.training.seedflood.layers import LiveModule

TOKENS = 4
"""Of the row that is tried."""


@torch.no_grad()
def check_reads(model: nn.Module) -> None:
    """model: live, with bases. Raises ModelError, naming the module, if anything else reads a parameter of one."""
    modules = {path: one for path, one in model.named_modules() if isinstance(one, LiveModule)}
    try:
        if _is_number(model, modules.values()) or not _is_number(model, ()):
            return
    except (TypeError, AttributeError) as error:  # what a stored matrix is not
        raise ModelError(
            f"Cannot train this model with matrices that are quantised or offloaded: it computes with one by itself "
            f"({first_line(error)}): choose another dtype, or a model of a family in docs/reference/models.md."
        ) from error
    for path, module in modules.items():
        if not _is_number(model, (module,)):
            raise ModelError(
                f"Cannot train {path}: the model computes with its parameters in another place, too, where what a run "
                "changes would be missing: choose a model of a family in docs/reference/models.md."
            )


def _is_number(model: nn.Module, without: Iterable[LiveModule]) -> bool:
    """Is the output a number if the parameters of these modules are none?"""
    device = CausalModel(model).device
    with _hidden(without):
        logits = model(input_ids=torch.arange(TOKENS, device=device).unsqueeze(0), use_cache=False).logits
    return not bool(logits.isnan().any())


@contextmanager
def _hidden(modules: Iterable[LiveModule]) -> Iterator[None]:
    """Within, the parameters of these modules are no numbers; it takes no memory."""
    before = [(module, dict(module._parameters)) for module in modules]
    try:
        for module, parameters in before:
            for name, one in parameters.items():
                if one is not None:
                    nothing = torch.full((), torch.nan, dtype=one.dtype, device=one.device).expand(one.shape)
                    module._parameters[name] = nn.Parameter(nothing, requires_grad=False)
        yield
    finally:
        for module, parameters in before:
            module._parameters.update(parameters)
