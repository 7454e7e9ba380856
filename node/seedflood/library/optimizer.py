"""The optimizer of a swarm, in the shape that PyTorch loops, Hugging Face trainers and accelerate take."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from seedflood.errors import ConfigError

Step = Callable[[Callable[[], float] | None, Any], None]
"""Sends what was measured, and applies what all hosts found. Given: what computes the loss anew, where no gradient is
sent; and the loss, if a closure has computed it."""


class Optimizer(torch.optim.Optimizer):
    """`step` sends all other hosts what this one measured, waits for their updates, and applies them all: the same on
    all.

    Gradients of several backward passes add up until the step, which takes them: `zero_grad` behind it has nothing left
    to do. `param_groups[0]["lr"]` shows the rate in force. It belongs to the run, so it cannot be changed. Clipping
    changes how large the gradient of this host is sent, and so hardly what is learned.
    """

    def __init__(
        self, increments: nn.Parameter, step: Step, rate: Callable[[], float], *, sends_gradients: bool
    ) -> None:
        self._sends_gradients = sends_gradients
        self._send = step
        self._rate_now = rate
        self._shown = rate()
        super().__init__([increments], {"lr": self._shown})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """closure: computes the loss, and in a run that sends gradients also their backward pass. A run that measures
        two-sided calls it twice. Returns the loss of its last call, None without it.

        Raises ConfigError, with one sentence, if there is no gradient or no loss; and what has ended the daemon.
        """
        if self.param_groups[0]["lr"] != self._shown:
            raise ConfigError(
                "the learning rate belongs to the run, and a script cannot change it: set learning_rate in "
                "[run.seedflood] on all hosts, and give a trainer swarm.schedule()."
            )
        lost: list[Any] = []

        def loss_of() -> float:
            assert closure is not None
            with torch.no_grad():
                lost.append(closure())
            if lost[-1] is None:
                raise ConfigError("the function given to step() returns nothing: let it return the loss.")
            return float(lost[-1])

        if closure is not None and self._sends_gradients:
            with torch.enable_grad():
                lost.append(closure())
        self._send(None if closure is None else loss_of, lost[-1] if lost else None)
        self._shown = self.param_groups[0]["lr"] = self._rate_now()
        return lost[-1] if lost else None


class RunSchedule(LRScheduler):
    """Leaves the rate as the run has it."""

    def get_lr(self) -> list[float | Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]
