"""The loss of a step as other hosts receive it: what the model's outputs had as `loss`, or what the script reported."""

from typing import Any

import torch
from torch import Tensor, nn

from seedflood.errors import ConfigError


class Losses:
    """Looks at each output of a model with gradients, from now on."""

    def __init__(self, model: nn.Module) -> None:
        self._of_outputs: list[Tensor] = []
        self._reported: list[float] = []
        self._hook = model.register_forward_hook(self._look)

    def detach(self) -> None:
        self._hook.remove()

    def report(self, loss: float | Tensor) -> None:
        self._reported.append(float(loss.detach() if isinstance(loss, Tensor) else loss))

    def mean(self) -> float:
        """Since `clear`. Raises ConfigError if there was none."""
        losses = self._reported or [float(loss) for loss in self._of_outputs]
        if not losses:
            raise ConfigError(
                "the loss of this step is not known: have the model compute it (labels=...), or call "
                "swarm.report(loss) before step()."
            )
        return sum(losses) / len(losses)

    def clear(self) -> None:
        self._of_outputs.clear()
        self._reported.clear()

    def _look(self, _module: nn.Module, _given: Any, output: Any) -> None:
        loss = getattr(output, "loss", None)
        if torch.is_grad_enabled() and isinstance(loss, Tensor) and loss.numel() == 1:
            self._of_outputs.append(loss.detach())
