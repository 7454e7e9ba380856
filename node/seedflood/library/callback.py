"""What a Hugging Face `Trainer`, or one of TRL, needs besides the optimizer."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from seedflood.errors import ConfigError
from seedflood.library.rows import WORKERS

if TYPE_CHECKING:
    from seedflood.library.participant import Participant


class Callback(TrainerCallback):
    """Ends the training with the run, and puts the swarm's figures into what the trainer logs.

    trainer = Trainer(model, args, optimizers=(swarm.optimizer(), swarm.schedule()))
    seedflood.Callback(swarm).add_to(trainer)
    """

    def __init__(self, swarm: "Participant", best_reward: float = 1.0) -> None:
        """best_reward: what the reward functions of GRPO and its like give at best, all together. The loss of such a
        trainer is about 0 whether it learns or not, so other hosts receive how much is missing to this, at least 0."""
        self._swarm = swarm
        self._best_reward = best_reward
        self._reward: float | None = None
        self._norm: float | None = None
        """Of the gradient of this step."""

    def add_to(self, trainer: Trainer) -> None:
        """Before its trackers, so that they see the figures, too. From now on other hosts receive the loss that this
        trainer brings down. Raises ConfigError if its arguments do not go together with a run."""
        args = trainer.args
        if args.max_steps < self._swarm.steps:
            raise ConfigError(
                f"the trainer would leave the run before its end: give it max_steps=swarm.steps ({self._swarm.steps})."
            )
        if args.load_best_model_at_end:
            raise ConfigError("load_best_model_at_end would put back what all hosts have learned since: take it out.")
        if args.dataloader_num_workers and getattr(args, "dataloader_multiprocessing_context", None) is None:
            raise ConfigError(WORKERS)
        is_precomputed = (
            getattr(args, "precompute_ref_log_probs", False) and getattr(trainer, "ref_model", None) is None
        )
        if is_precomputed and self._swarm.step > 0:
            raise ConfigError(
                "the reference of this trainer would be the model as it stands now: take precompute_ref_log_probs out, "
                "and it loads the base model for that."
            )
        settings = self._swarm.settings
        if hasattr(trainer, "reward_funcs") and settings.run.seedflood.learning_rate is None:
            # Of GRPO and the like. The run cannot know it from its task.
            raise ConfigError(
                "a trainer that learns by reward needs a lower rate than the default: set learning_rate in "
                f"[run.seedflood] on all hosts, such as {self._swarm.reward_rate:.1g}."
            )
        self._trainer = trainer
        trainer.callback_handler.callbacks.insert(0, self)
        compute_loss = trainer.compute_loss

        def reporting(model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            computed = compute_loss(model, inputs, *given, **named)
            loss = computed[0] if isinstance(computed, tuple) else computed
            missing = self._missing_reward()
            if missing is not None:
                self._swarm.report(missing)
            elif torch.is_grad_enabled():
                # Where it knows how many tokens a step has, its losses are parts of the mean over that step.
                is_part = named.get("num_items_in_batch") is not None and trainer.model_accepts_loss_kwargs
                # The last step of an epoch may have fewer parts than the arguments say.
                self._swarm.report(loss * (trainer.current_gradient_accumulation_steps if is_part else 1))
            return computed

        trainer.compute_loss = reporting  # type: ignore[method-assign]

    def _missing_reward(self) -> float | None:
        """Of the newest texts; None if the trainer does not learn by reward."""
        # TRL keeps rewards nowhere else, and drops them when it logs. Texts may serve several steps.
        rewards = getattr(self._trainer, "_metrics", {}).get("train", {}).get("reward")
        if rewards:
            self._reward = rewards[-1]
        return None if self._reward is None else max(self._best_reward - self._reward, 0.0)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Whoever comes late, or again, counts on from where the run stands."""
        state.global_step = self._swarm.step
        # From these the trainer counts the steps over which its losses are means, since it has no checkpoint to resume.
        for name in ("_globalstep_last_logged", "_initial_global_step"):
            setattr(self._trainer, name, state.global_step)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        (increments,) = self._swarm.optimizer().param_groups[0]["params"]
        self._norm = None if increments.grad is None else float(increments.grad.norm())

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        # A scaler of gradients leaves out a step whose gradient overflowed, and resets the parameters that it knows.
        self._swarm.optimizer().zero_grad()
        state.global_step = self._swarm.step
        if self._swarm.is_over:
            control.should_training_stop = True
        return control

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        if logs is None or not state.log_history:
            return
        swarm = self._swarm
        figures: dict[str, Any] = {
            "swarm/step": swarm.step,
            "swarm/loss": swarm.loss,
            "swarm/learning_rate": swarm.learning_rate,
            "swarm/bytes_sent": swarm.bytes_sent,
            "swarm/hosts": swarm.hosts,
        }
        if "grad_norm" in logs:  # the trainer takes that of the model's own parameters, which have none
            figures["grad_norm"] = self._norm
        known = {name: figure for name, figure in figures.items() if figure is not None}
        logs.update(known)
        state.log_history[-1].update(known)
