"""A trainer for users' own loops: the loss is computed by another thread, with the user's model, loss and rows.

Two threads meet here. The compute thread owns the replica, as in the daemon: it applies what all hosts found. When a
step is due it *lends* the live model to the user's thread, and waits until that has given back what it measured. So the
user may do anything with the model between two calls of `Optimizer.step`, and never sees it change meanwhile.

Shapes: F increments (subspace.py).
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor, nn

from seedflood.config import NodeSettings, RunSettings
from seedflood.errors import ModelError
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.protocol.seedflood.seeds import probe_seed
from seedflood.training.loading import load_base
from seedflood.training.models import (
    BaseModel,
    DtypeName,
    digest_weights,
    distinct_parameters,
    prepare_model,
    tensors_of,
)
from seedflood.training.seedflood.compression import compress
from seedflood.training.seedflood.estimate import Measurement
from seedflood.training.seedflood.gradient import Gradient
from seedflood.training.seedflood.layers import detach
from seedflood.training.seedflood.trainer import Trainer


class Handover:
    """Where the two threads meet. `lend` is called by the compute thread, `borrow` and `give_back` by the user's, and
    `finish` by the event loop, when the node ends.

    is_over: the run has ended. fault: what has ended the node before that.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.fault: BaseException | None = None
        self._changed = threading.Condition()
        self._step: int | None = None
        """For which the model is lent."""
        self._measured: Measurement | None = None
        self._is_finished = False

    def lend(self, step: int) -> Measurement:
        """Waits for what the user measures. Raises RuntimeError if the node is going."""
        with self._changed:
            self._step, self._measured = step, None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._measured is not None or self._is_finished)
            self._step = None
            if self._measured is None:
                raise RuntimeError("the node is going")
            return self._measured

    def finish(self, *, is_over: bool = False, fault: BaseException | None = None) -> None:
        """Nothing is lent any more."""
        with self._changed:
            self._is_finished, self.is_over, self.fault = True, is_over, fault
            self._changed.notify_all()

    def borrow(self) -> int | None:
        """Waits until a step is due, and returns it; None if there is none any more. Raises what has ended the node,
        each time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_finished or (self._step is not None and self._measured is None))
            if self.fault is not None:
                raise self.fault
            return None if self._is_finished else self._step

    def give_back(self, measured: Measurement) -> None:
        with self._changed:
            self._measured = measured
            self._changed.notify_all()


class GivenModel:
    """How a user's model came, to give it back so."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._used_cache = model.config.use_cache
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def restore(self) -> None:
        detach(self._model)
        self._model.config.use_cache = self._used_cache
        for parameter in self._trained:
            parameter.requires_grad_()


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Afterwards every module is in training mode, or not, as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, is_training in modes:
            module.training = is_training


class LendingTrainer(Trainer):
    """The trainer of a host whose user's loop computes the losses.

    increments: the one trained parameter, (1, F) float32 on the model's device. While the model is lent, the live
    layers compute with it.
    """

    def __init__(self, run: RunSettings, node: NodeSettings, model: Any, handover: Handover) -> None:
        """model: a `PreTrainedModel` of transformers. Raises ModelError if it is no model of this run."""
        self.model = model  # before the rest, which asks for the base model
        self._handover = handover
        self._seed = 0
        """Of the direction of the step for which the model is lent."""
        self._base: BaseModel | None = None
        super().__init__(run, node)
        self.increments = nn.Parameter(torch.zeros(1, self.replica.subspace.size, device=self.replica.base.device))

    @property
    def sends_gradients(self) -> bool:
        """Else the run measures along seeded directions, from losses alone."""
        return isinstance(self.compression, Coefficients)

    def compress_gradient(self, loss: float) -> Measurement:
        """The update for the gradient that backward passes have left in the increments."""
        assert isinstance(self.compression, Coefficients)
        assert self.increments.grad is not None
        slope_F = self.increments.grad[0].detach().to("cpu", torch.float32)
        return compress(self.compression, Gradient(slope_F, loss))

    def measure_losses(self, loss_of: Callable[[], float]) -> Measurement:
        """The update for the losses near the weights, along the direction of the step."""
        return self.replica.measure_by(loss_of, self._seed)

    def close(self) -> None:
        """Makes the weights stand for all that was applied here. Call it when the compute thread has ended."""
        if (replica := getattr(self, "replica", None)) is not None:  # making it again may have failed
            replica.close()

    def _load_base(self) -> BaseModel:
        """The user's model as it came. When the replica is made again, with the weights of the run's model."""
        expected = load_base(self.run, self.node.model_copy(update={"device": "cpu", "dtype": "float32"}))
        weights = {name: one.detach() for name, one in distinct_parameters(expected.model)}
        if self._base is not None:
            detach(self.model)
            copy_weights(weights, self._base)
            return self._base
        types = {name: one.dtype for name, one in tensors_of(self.model)}
        with modes_kept(self.model):
            base = prepare_given(self.model)
        rounded = {name: one.to(types.get(name, base.dtype)) for name, one in tensors_of(expected.model)}
        if digest_weights(rounded) != base.digest:
            raise ModelError(
                f'this model is not the one that [run] model names ("{self.run.model}"): load that one (again, if it '
                "was trained since), or correct [run] on all hosts."
            )
        base.digest, base.tokenizer, base.files = expected.digest, expected.tokenizer, expected.files
        if base.master is not None:
            base.master = weights  # what the user loaded was rounded
        base.buffers = expected.buffers
        self._base = base
        return base

    def _measure_one(self, origin: OriginId, step: int) -> Measurement:
        self._seed = probe_seed(self.run.seed, origin, step)
        self.replica.open_epoch(self.replica.epoch_of(step))
        self.replica.lend(self.increments)
        measured = self._handover.lend(step)
        self.replica.take_back()  # not after an exception: whoever computes just now shall find a gradient
        return measured


def prepare_given(model: Any) -> BaseModel:
    """A base model of a transformers model as it is, on its device and in its type. Raises ModelError."""
    dtype: Any = str(model.dtype).removeprefix("torch.")
    if dtype not in (known := get_args(DtypeName)):
        raise ModelError(f"the model computes in {dtype}: load it in {', '.join(known[1:])}.")
    return prepare_model(model, None, name=type(model).__name__, device=str(model.device), dtype=dtype)


@torch.no_grad()
def copy_weights(weights: Mapping[str, Tensor], base: BaseModel) -> None:
    """Gives a base model these weights, float32 in host memory."""
    for name, parameter in distinct_parameters(base.model):
        parameter.copy_(weights[name])
        if base.master is not None and name in base.master:
            base.master[name].copy_(weights[name])
