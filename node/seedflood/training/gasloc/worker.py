"""Local steps: a worker trains its model by itself, as a trainer on one machine does.

The state of a worker is its parameters, the state of its optimiser and the number of the step, and nothing else: rows
and learning rate follow from the step, the model has no dropout (it is in evaluation mode) and nothing else is random.
So a worker that is restored from a checkpoint goes on bit by bit as if it had not stopped, on the same machine.

Weights, gradients and the optimiser's state are float32, whatever the arithmetic of a forward is: with
`is_bfloat16` products are computed in bfloat16 (autocast), sums and losses in float32.

An optimiser is element-wise, so it gets two flat tensors instead of hundreds of small ones, and takes one pass over
memory.

Shapes: F numbers of all parameters (flat.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seedflood.training.causal import CausalModel
from seedflood.training.devices import autocast, exact_device
from seedflood.training.gasloc.flat import FlatModel
from seedflood.training.gasloc.schedule import Schedule
from seedflood.training.objectives.batches import Batch
from seedflood.training.objectives.objective import Batches
from seedflood.training.stacks import checkpointed, layers_of

GRADIENT_NORM_MAX = 1.0
"""The whole gradient of a step is scaled down to this norm if it is larger."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker trains.

    optimiser: a class of `torch.optim`. options: its other arguments (betas, momentum, ...). weight_decay:
    only for matrices. micro_batch: rows at once; None: all. is_bfloat16, is_checkpointed (gradient checkpointing, layer
    by layer): each host chooses for itself.
    """

    optimiser: str = "AdamW"
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=lambda: Schedule(0, 1, floor=1.0))
    micro_batch: int | None = None
    is_bfloat16: bool = False
    is_checkpointed: bool = False


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The result of some consecutive local steps.

    step: the first one. loss: their mean loss. tokens: how many were predicted. skipped: how
    many steps changed nothing because their gradient was not finite.
    """

    step: int
    steps: int
    loss: float
    tokens: int
    seconds: float
    skipped: int


class Worker:
    """One model, its rows and its optimiser.

    step: the next one. flat: the parameters, which an outer step may rewrite between two local ones.
    """

    def __init__(self, module: nn.Module, data: Batches, origin: int, settings: WorkerSettings) -> None:
        module.eval()
        self.flat = FlatModel(module)
        self.causal = CausalModel(module)
        self.settings = settings
        self.step = 0
        self._data = data
        self._origin = origin
        self._layers: Sequence[nn.Module] = layers_of(module) if settings.is_checkpointed else ()
        groups = [
            {"params": [group], "weight_decay": decay}
            for group, decay in zip(self.flat.groups(), (settings.weight_decay, 0.0), strict=True)
            if group.numel()
        ]
        make: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, settings.optimiser)
        self.optimiser = make(groups, lr=settings.learning_rate, **{"fused": True, **settings.options})

    def take_steps(self, count: int) -> LocalSteps:
        begun = time.perf_counter()
        device = self.flat.values_F.device
        losses = torch.zeros(count, dtype=torch.float64, device=exact_device(device))
        tokens = skipped = 0
        for index in range(count):
            batch = self._data.batch(self._origin, self.step)
            losses[index] = self.gradient(batch)
            tokens += self._data.objective.count(batch)
            norm = torch.linalg.vector_norm(self.flat.gradients_F)
            if torch.isfinite(norm):
                self._descend(norm)
            else:
                skipped += 1
            self.step += 1
        loss = float(losses.mean())
        return LocalSteps(self.step - count, count, loss, tokens, time.perf_counter() - begun, skipped)

    def gradient(self, batch: Batch) -> Tensor:
        """Fills `flat.gradients_F` with the gradient of a batch's mean loss, and returns that loss."""
        self.flat.gradients_F.zero_()
        device = self.flat.values_F.device
        objective = self._data.objective
        count = max(1, objective.count(batch))  # all of these rows may be questions
        total = torch.zeros((), dtype=torch.float64, device=exact_device(device))
        with torch.enable_grad(), checkpointed(self._layers):
            for piece in batch.parts(self.settings.micro_batch):
                with autocast(device, enabled=self.settings.is_bfloat16):
                    score = objective.measure(self.causal, piece.to(device))
                loss = score.minimised_sums.sum() / count
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
        return total

    def _descend(self, norm: Tensor) -> None:
        self.flat.gradients_F.mul_((GRADIENT_NORM_MAX / (norm + 1e-6)).clamp(max=1.0))
        rate = self.settings.learning_rate * self.settings.schedule.factor(self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
