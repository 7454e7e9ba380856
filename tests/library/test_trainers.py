"""The trainers of Hugging Face and TRL with the optimizer of a swarm, unchanged."""

import sys
from types import SimpleNamespace

import pytest
import torch

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")

from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

import seedflood  # noqa: E402
from seedflood.embedded import MODEL_FOLDER, texts  # noqa: E402
from seedflood.errors import ConfigError  # noqa: E402


def arguments(kind, swarm, folder, **more):
    return kind(
        output_dir=str(folder / "out"),
        max_steps=swarm.steps,
        max_grad_norm=0.0,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **more,
    )


def joining(swarm):
    return {"optimizers": (swarm.optimizer(), swarm.schedule()), "callbacks": [Tracker()]}


class Tracker(TrainerCallback):
    """Stands where those of `report_to` stand."""

    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append(dict(logs))


def train(trainer, swarm, loss_of=lambda logs: logs["loss"], **settings):
    seedflood.Callback(swarm, **settings).add_to(trainer)
    trainer.train()
    tracker = next(one for one in trainer.callback_handler.callbacks if isinstance(one, Tracker))
    told = [(loss_of(logs), logs["swarm/loss"]) for logs in tracker.seen if "swarm/loss" in logs and "loss" in logs]
    assert len(told) >= 2
    assert all(swarms == pytest.approx(trained, abs=0.01) for trained, swarms in told), told
    assert swarm.is_over
    assert trainer.state.global_step == swarm.steps
    logged = [entry for entry in trainer.state.log_history if "swarm/loss" in entry]
    assert [entry["swarm/step"] for entry in logged][-1] == swarm.steps
    assert {"swarm/hosts", "swarm/bytes_sent", "swarm/learning_rate", "learning_rate"} <= logged[0].keys()
    assert all(entry["grad_norm"] > 0 for entry in logged if "grad_norm" in entry)


def test_the_trainer_of_transformers(join, model, batches, tmp_path):
    rows = [{name: one[0] for name, one in batches(step).items()} for step in range(16)]
    with join(steps=6) as swarm:
        digest = swarm.digest
        args = arguments(TrainingArguments, swarm, tmp_path, gradient_accumulation_steps=2, remove_unused_columns=False)
        trainer = Trainer(model, args, train_dataset=rows, **joining(swarm))
        train(trainer, swarm)
        assert swarm.digest != digest


class Overflow(torch.amp.GradScaler):
    """Finds an overflow in its first step, as in half precision on a GPU."""

    def __init__(self):
        super().__init__("cpu", init_scale=1.0)
        self.steps = 0

    def step(self, optimizer, *given, **named):
        self.steps += 1
        if self.steps == 1:
            (increments,) = optimizer.param_groups[0]["params"]
            increments.grad.fill_(float("inf"))
        return super().step(optimizer, *given, **named)


def test_a_step_that_a_scaler_leaves_out_is_done_again(join, model, batches, tmp_path):
    rows = [{name: one[0] for name, one in batches(step).items()} for step in range(16)]
    with join(steps=6) as swarm:
        args = arguments(TrainingArguments, swarm, tmp_path, remove_unused_columns=False)
        trainer = Trainer(model, args, train_dataset=rows, **joining(swarm))
        trainer.accelerator.scaler = scaler = Overflow()
        seedflood.Callback(swarm).add_to(trainer)
        trainer.train()
        assert swarm.is_over
        assert (scaler.steps, trainer.state.global_step) == (7, 6)


def test_the_last_step_of_an_epoch_may_have_fewer_parts(join, model, batches, tmp_path):
    rows = [{name: one[0] for name, one in batches(step).items()} for step in range(20)]
    with join(steps=6) as swarm:  # five batches of four rows an epoch: steps of four, and of one
        args = arguments(TrainingArguments, swarm, tmp_path, gradient_accumulation_steps=4, remove_unused_columns=False)
        train(Trainer(model, args, train_dataset=rows, **joining(swarm)), swarm)


def test_a_model_of_float32_trains_in_mixed_precision(write, batches, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32)
    rows = [{name: one[0] for name, one in batches(step).items()} for step in range(16)]
    with seedflood.join(model, write(steps=3)) as swarm:
        args = arguments(TrainingArguments, swarm, tmp_path, bf16=True, remove_unused_columns=False)
        train(Trainer(model, args, train_dataset=rows, **joining(swarm)), swarm)


def test_supervised_fine_tuning_of_trl(join, model, tokenizer, tmp_path):
    rows = datasets.Dataset.from_list(texts("train")[:64])
    with join(steps=6) as swarm:
        args = arguments(trl.SFTConfig, swarm, tmp_path, max_length=32, bf16=False)
        trainer = trl.SFTTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer, **joining(swarm))
        train(trainer, swarm)


def test_preferences_of_trl_refer_to_the_base_model(join, model, batches, tokenizer, tmp_path):
    words = [row["text"].split() for row in texts("train")[:64]]
    pairs = [
        {"prompt": " ".join(one[:4]), "chosen": " " + " ".join(one[4:]), "rejected": " " + " ".join(one[:3:-1])}
        for one in words
    ]
    base = {name: one.clone() for name, one in model.state_dict().items()}
    with join(steps=6) as swarm:
        model(**batches(0)).loss.backward()
        swarm.optimizer().step()  # as if the script was started again
        args = arguments(trl.DPOConfig, swarm, tmp_path, max_length=32, bf16=False)
        trainer = trl.DPOTrainer(
            model,
            args=args,
            train_dataset=datasets.Dataset.from_list(pairs),
            processing_class=tokenizer,
            **joining(swarm),
        )
        assert all(torch.equal(one, base[name]) for name, one in trainer.ref_model.state_dict().items())
        train(trainer, swarm)


def test_rewards_of_trl(join, model, tokenizer, tmp_path):
    prompts = datasets.Dataset.from_list([{"prompt": row["text"][:20]} for row in texts("train")[:64]])

    def short(completions, **_):
        return [-len(one) / 16 for one in completions]

    with join(steps=3, learning_rate=0.01) as swarm:
        args = arguments(
            trl.GRPOConfig, swarm, tmp_path, num_generations=4, max_completion_length=8, bf16=False, num_iterations=1
        )
        trainer = trl.GRPOTrainer(
            model, reward_funcs=short, args=args, train_dataset=prompts, processing_class=tokenizer, **joining(swarm)
        )
        # The loss of the trainer is about 0 at whatever reward.
        train(trainer, swarm, lambda logs: 2 - logs["reward"], best_reward=2.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"load_best_model_at_end": True}, "take it out"),
        ({"dataloader_num_workers": 2}, "cannot be forked"),
        ({"precompute_ref_log_probs": True}, "loads the base model"),
        ({"max_steps": 2}, "max_steps=swarm.steps"),
        ({"max_steps": -1}, "max_steps=swarm.steps"),
    ],
)
def test_what_would_learn_or_load_something_else_is_refused(join, model, batches, changes, sentence):
    plain = {"load_best_model_at_end": False, "dataloader_num_workers": 0, "max_steps": 3}
    with join(steps=3) as swarm:
        model(**batches(0)).loss.backward()
        swarm.optimizer().step()
        trainer = SimpleNamespace(args=SimpleNamespace(**(plain | changes)))
        with pytest.raises(ConfigError, match=sentence):
            seedflood.Callback(swarm).add_to(trainer)


def test_a_trainer_by_reward_is_told_which_rate_it_may_have(join):
    plain = SimpleNamespace(load_best_model_at_end=False, dataloader_num_workers=0, max_steps=3)
    with join(steps=3) as swarm:
        sentence = rf"on all hosts, such as {swarm.learning_rate / 4:.1g}\."
        with pytest.raises(ConfigError, match=sentence):
            seedflood.Callback(swarm).add_to(SimpleNamespace(args=plain, reward_funcs=[]))


FIGURES = ("step", "loss", "learning_rate", "bytes_sent", "hosts")


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [one.value for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def read_trackio(_folder):
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = SQLiteStorage.get_runs("swarm")
    logs = SQLiteStorage.get_logs("swarm", run)
    return {name: [one[name] for one in logs if name in one] for name in set().union(*logs)}


@pytest.mark.parametrize(("tracker", "read"), [("tensorboard", read_tensorboard), ("trackio", read_trackio)])
def test_a_tracker_keeps_the_figures_of_the_swarm(join, model, tokenizer, tmp_path, monkeypatch, tracker, read):
    """Both write to a folder of this machine: Trackio, too, needs neither a server nor a network."""
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    pytest.importorskip(tracker)
    for name, module in list(sys.modules.items()):  # TRACKIO_DIR is read at the import, which TRL may have done
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path)
    rows = datasets.Dataset.from_list(texts("train")[:64])
    with join(steps=4) as swarm:
        args = arguments(trl.SFTConfig, swarm, tmp_path, max_length=32, bf16=False, project="swarm")
        args.report_to = [tracker]
        trainer = trl.SFTTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer, **joining(swarm))
        train(trainer, swarm)
    kept = read(tmp_path)
    for name in FIGURES:
        logged = [entry[f"swarm/{name}"] for entry in trainer.state.log_history if f"swarm/{name}" in entry]
        assert len(logged) >= swarm.steps
        assert kept[f"train/swarm/{name}"] == pytest.approx(logged)
