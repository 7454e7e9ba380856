"""`seedflood.join`: this host's part in a run whose losses a script computes."""

import atexit
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self

import torch
from torch import nn
from transformers import PreTrainedModel

from seedflood.config import Settings, check_settings, load_settings
from seedflood.errors import ConfigError, SeedfloodError
from seedflood.host.logs import log_beside
from seedflood.host.places import hold
from seedflood.library.hosting import Hosting
from seedflood.library.losses import Losses
from seedflood.library.optimizer import Optimizer, RunSchedule
from seedflood.library.rows import share
from seedflood.log import log
from seedflood.training.card import Learned, model_card
from seedflood.training.seedflood.adapter import RANK_MAX, make_adapter
from seedflood.training.seedflood.layers import LiveModule
from seedflood.training.seedflood.lending import GivenModel, Handover, LendingTrainer
from seedflood.training.shards import Shard, parse_shard

ENDING = (signal.SIGTERM, signal.SIGHUP)

IGNORED = ("device", "dtype", "micro_batch")
"""Keys of `[node]` that say how the daemon would load the model and compute with it."""

BATCHES_WITHOUT_A_STEP = 256
"""So many micro-batches of one step are likely a loop that never takes one."""


def join(
    model: PreTrainedModel, peers: str | PathLike[str] = "peers.toml", settings: Mapping[str, Any] | None = None
) -> "Participant":
    """Takes part in the run of a `peers.toml` with a loaded model, and returns when the first step is due.

    Use it as a context manager: leaving the block says goodbye to the other hosts and gives the model back, with all
    that was learned in its weights. Within, the model computes with the increments that all hosts share, and these are
    the only trained parameter. `state_dict` and `save_pretrained` have the weights with them.

    model: the one that `[run] model` names, on any device, in float32, bfloat16 or float16, not wrapped by PEFT, DDP or
    `torch.compile`. settings: what replaces keys of the file, nested like it: `{"node": {"name": "beta"}}`.

    Raises ConfigError or ModelError, with one sentence, before anything is sent; and whatever ends the daemon.
    """
    if not Path(peers).is_file():
        raise ConfigError(f"there is no {peers}: give join the peers.toml of this host.")
    read = load_settings(Path(peers), settings)
    node = read.node.model_copy(update={"evaluate_examples": 0, "then": None})  # the script evaluates, and ends itself
    read = read.model_copy(update={"node": node})
    _check(model, read)
    try:
        return Participant(model, read)
    except SeedfloodError as error:
        raise error.with_traceback(None) from None  # a sentence for people, without the frames of three threads


class Participant:
    """This host's part in a run. Make it by `join`."""

    def __init__(self, model: PreTrainedModel, settings: Settings) -> None:
        self.settings = settings
        self._handover = Handover()
        self._optimizer: Optimizer | None = None
        self._due_step: int | None = None
        """None: it is not known, or the run is over."""
        self._has_left = self._has_stepped = False
        with ExitStack() as undo:
            undo.callback(_release, hold(settings.node.state))
            undo.callback(log_beside(settings.node.name))
            undo.callback(_exit_on_termination())
            if ignored := [key for key in IGNORED if key in settings.node.model_fields_set]:
                log.warning("your script decides these, so they are not used", node_settings=ignored)
            if model.dtype == torch.float16 and model.device.type == "cpu":
                log.warning('the model is of float16, which CPUs compute slowly: load it with dtype="float32"')
            if settings.node.threads is not None:
                undo.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(settings.node.threads)
            undo.callback(GivenModel(model).restore)
            self._host = Hosting(settings, model, self._handover)
            undo.callback(self._host.leave)
            atexit.register(self.close)  # of a script without `with`, while the loop still runs
            undo.callback(atexit.unregister, self.close)
            self._trainer = self._host.trainer
            self._losses = Losses(model)
            undo.callback(self._losses.detach)
            undo.callback(_add_increments_to_state(model, self._trainer))
            undo.callback(model.register_load_state_dict_pre_hook(_refuse_to_load).remove)  # type: ignore[no-untyped-call]
            self._due()
            self._open = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._leave()  # that error counts; the log has any other

    def close(self) -> None:
        """Leaves the run, if it is not over, and gives the model back. Idempotent. Raises ModelError if `[node] export`
        could not be written."""
        if not (self._has_left or self._has_stepped or self.is_over):
            log.warning("this host has sent no step: train by swarm.optimizer(), no other optimizer has its parameters")
        self._leave()
        if (error := self._host.unexported) is not None:
            self._host.unexported = None
            raise error

    def _leave(self) -> None:
        if self._handover.fault is not None:
            log.error("the node has ended", reason=str(self._handover.fault))
        self._has_left = True
        self._open.close()

    # The loop of the script

    def optimizer(self) -> Optimizer:
        """The optimizer of the run, for a loop of one's own or any trainer that takes one. Always the same."""
        if self._optimizer is None:
            self._optimizer = Optimizer(
                self._trainer.increments,
                self._step,
                lambda: self.learning_rate,
                sends_gradients=self._trainer.sends_gradients,
            )
        return self._optimizer

    def schedule(self) -> RunSchedule:
        """For trainers that want a scheduler beside an optimizer: the rate belongs to the run."""
        return RunSchedule(self.optimizer())

    def share(self, data: Any) -> Iterator[Any]:
        """Batches of this host's rows, from where the run stands, until it is over.

        data: a `DataLoader`, whose batch size and collator are used, over a data set with a length; or an iterable of
        batches. Of a data set, the rows of `[node] shard` (all of them without one) are drawn in an order that follows
        from the run's seed, this host's key and the step: a script that is started again goes on with the batch that is
        due. Of an iterable, every batch that belongs to another shard or an earlier step is passed over.
        """
        step, batches = -1, 0
        for batch in share(data, self.settings.run, self.shard, self._host.origin, lambda: self.step):
            if self._due() is None:
                return
            batches = batches + 1 if self.step == step else 1
            step = self.step
            if batches == BATCHES_WITHOUT_A_STEP:
                log.warning("the script draws batches and takes no step: call swarm.optimizer().step()")
            yield batch
        if self._due() is not None:
            reason = "the batches are over before the run is; a DataLoader draws its rows again and again"
            log.warning(reason, step=self.step, steps=self.steps)

    def report(self, loss: float | torch.Tensor) -> None:
        """The loss of this step, where the model's own output does not have it. All hosts receive it."""
        self._losses.report(loss)

    # What there is to know

    @property
    def is_over(self) -> bool:
        """Has the run ended? Then `step` does nothing any more."""
        return self._handover.is_over

    @property
    def step(self) -> int:
        """The step that is due, or how many there were."""
        return self._host.step if self._due_step is None else self._due_step

    @property
    def steps(self) -> int:
        """Length of the run."""
        return self.settings.run.steps

    @property
    def shard(self) -> Shard:
        """Which part of the rows is this host's, as `[node] shard` has it: for trainers that take a data set,
        `rows.shard(swarm.shard.count, swarm.shard.index)`."""
        return parse_shard(self.settings.node.shard)

    @property
    def loss(self) -> float | None:
        """The median loss of all hosts in the last step; None before it."""
        return self.figures().get("loss_of_all_hosts")

    @property
    def digest(self) -> str:
        """64 hex digits, equal on hosts that hold the same updates: at the end of the run on all of them."""
        return self._trainer.digest().hex()

    @property
    def learning_rate(self) -> float:
        """In force now: the run's own rate, falling with the steps, halved where the hosts unlearned."""
        return self._trainer.rate_of(self.step, self._trainer.replica.halvings)

    @property
    def reward_rate(self) -> float:
        """The `learning_rate` to set in `[run.seedflood]` for a trainer that learns by reward."""
        return self._trainer.replica.reward_rate

    @property
    def bytes_sent(self) -> int:
        """To all neighbours together, in this process."""
        return self._host.bytes_sent()

    @property
    def hosts(self) -> int:
        """How many hosts take part now, as far as this one knows; itself, too."""
        return int(self.figures()["hosts"])

    def figures(self) -> Mapping[str, float]:
        """What the status page shows of this node, by name."""
        return self._host.figures()

    # What was learned

    def export(self, folder: str | PathLike[str]) -> Path:
        """Writes the model as it stands as a Hugging Face folder with a card. Raises SeedfloodError."""
        return self._trainer.export(Path(folder), self._card())

    def export_adapter(self, folder: str | PathLike[str], rank: int = RANK_MAX) -> Path:
        """Writes what was learned as a LoRA adapter that PEFT reads. rank: of its matrices at most. Call it within the
        block. Raises SeedfloodError."""
        if not any(isinstance(module, LiveModule) for module in self._trainer.model.modules()):
            raise ConfigError("an adapter is made of a live model: call export_adapter before the block ends.")
        if rank < 1:
            raise ConfigError(f"an adapter has a rank of 1 or more, not {rank}.")
        adapter = make_adapter(self._trainer.replica, self.settings.run.model, rank=rank)
        return adapter.write(Path(folder), self._card("adapter"))

    def _card(self, kind: Literal["model", "adapter"] = "model") -> str:
        trainer = self._trainer
        return model_card(Learned(self.settings.run, trainer.base_digest, trainer.digest(), {}, {}), kind)

    # How it works

    def _due(self) -> int | None:
        """Waits until the model may be used for a step, and returns that. None: the run is over. Raises ConfigError if
        this host has left before that."""
        if self._has_left:
            if not self.is_over:
                raise ConfigError("this host has left the run: join again to go on.")
            return None
        if self._due_step is None:
            self._due_step = self._handover.borrow()
            if self._due_step is None:
                self._trainer.replica.lend(self._trainer.increments)  # who still computes shall find a gradient
        return self._due_step

    def _step(self, loss_of: Callable[[], float] | None, loss: Any) -> None:
        """Sends what was measured, and waits until the next step is due. loss_of: computes the loss anew. loss: if a
        closure has computed it."""
        if self._due() is None:
            return
        trainer = self._trainer
        if trainer.sends_gradients and trainer.increments.grad is None:
            raise ConfigError("there is no gradient to send: call loss.backward() before step().")
        if loss is not None:
            self._losses.clear()
            self._losses.report(loss)
        if trainer.sends_gradients:
            measured = trainer.compress_gradient(self._losses.mean())
        elif loss_of is not None:
            measured = trainer.measure_losses(loss_of)
        else:
            estimate = trainer.run.seedflood.estimate
            raise ConfigError(
                f'this run measures losses alone (estimate = "{estimate}"): call step(closure), or set '
                'estimate = "gradient" in [run.seedflood] on all hosts.'
            )
        self._losses.clear()
        trainer.increments.grad = None  # trainers reset the gradients of a model's own parameters, and this is none
        self._due_step, self._has_stepped = None, True
        self._handover.give_back(measured)
        self._due()


def _check(model: Any, settings: Settings) -> None:
    """Raises ConfigError unless a script can take part with this model and these settings."""
    run = settings.run
    check_settings(settings)
    if run.mode != "seedflood" or run.objective.task != "own":
        raise ConfigError('a script computes losses of its own: set task = "own" in [run.objective] on all hosts.')
    if settings.node.role == "relay":
        raise ConfigError('[node] role = "relay" trains nothing: start it with seedflood-node.')
    if not isinstance(model, PreTrainedModel):
        raise ConfigError(
            f"the model is a {type(model).__name__}: give the transformers model itself, not one that is wrapped by "
            "PEFT, DDP or torch.compile."
        )
    if getattr(model, "peft_config", None) is not None or getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError("the model has an adapter of PEFT: merge it (merge_and_unload), or load the base model.")
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # spawned, and still reading the script
        raise ConfigError(
            'a worker of a DataLoader has run the script anew: put what it does below `if __name__ == "__main__":`.'
        )
    if settings.node.quantisation is not None:
        raise ConfigError(
            f'[node] dtype = "{settings.node.dtype}" would take the weights out of the model: load it in bfloat16 to '
            "save memory, and take dtype out."
        )
    if any(isinstance(module, LiveModule) for module in model.modules()):
        raise ConfigError("this model takes part in another swarm: leave that one first, or load the model again.")


def _add_increments_to_state(model: PreTrainedModel, trainer: LendingTrainer) -> Callable[[], object]:
    """From now on `state_dict` has the weights as the live model computes with them, for whoever saves it. Returns what
    undoes that."""

    def add(_model: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        weights = trainer.replica.weights()
        rounded = {id(one): one.to(model.dtype) for one in weights.values()}  # tied ones stay one
        state |= {prefix + name: rounded[id(one)] for name, one in weights.items()}

    hook = model.register_state_dict_post_hook(add)  # type: ignore[no-untyped-call]
    return hook.remove  # type: ignore[no-any-return]


def _refuse_to_load(*_: Any) -> None:
    raise ConfigError(
        "the weights of a model in a swarm cannot be loaded, for all hosts hold the same ones: join goes on from its "
        "journal without a checkpoint (for trainers: without resume_from_checkpoint and load_best_model_at_end)."
    )


def _exit_on_termination() -> Callable[[], object]:
    """SIGTERM, and SIGHUP of a terminal that is closed, end the script as leaving the block does. Handlers of the
    script's own stay. Returns what undoes that."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    ours = [one for one in ENDING if is_main and signal.getsignal(one) is signal.SIG_DFL]

    def undo() -> None:
        for one in ours:
            if signal.getsignal(one) is leave and threading.current_thread() is threading.main_thread():
                signal.signal(one, signal.SIG_DFL)

    for one in ours:
        signal.signal(one, leave)
    return undo


def _release(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # a worker that was forked may hold the descriptor, too
    os.close(lock)
