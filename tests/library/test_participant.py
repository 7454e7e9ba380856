"""`seedflood.join` in one process that is a run by itself: what a script sees, and what it leaves behind."""

import asyncio
import subprocess
import threading

import pytest
import structlog
import torch
from forks import programs
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import seedflood
from seedflood.config import load_settings
from seedflood.embedded import MODEL_FOLDER
from seedflood.errors import ConfigError, ModelError, SeedfloodError
from seedflood.host.logs import log_beside
from seedflood.log import log
from seedflood.offline.learned import rebuild
from seedflood.training.seedflood.layers import LiveModule


def train(swarm, model, batches, steps=None):
    """The losses of so many steps, or of all that are left."""
    optimizer, losses = swarm.optimizer(), []
    while not swarm.is_over and (steps is None or len(losses) < steps):
        loss = model(**batches(swarm.step)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def is_live(model):
    return any(isinstance(module, LiveModule) for module in model.modules())


def test_a_script_trains_and_has_a_plain_model_with_all_that_was_learned(join, model, batches, tmp_path):
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with join(steps=40) as swarm:
        first = float(model(**batches(0)).loss.detach())
        assert is_live(model)
        losses = train(swarm, model, lambda _: batches(0))
        learned = model.state_dict()
        assert not all(torch.equal(one, before[name]) for name, one in learned.items())
        assert (len(losses), swarm.step, swarm.steps, swarm.hosts) == (40, 40, 40, 1)
        assert swarm.loss == pytest.approx(losses[-1], abs=1e-3)
        last = float(model(**batches(0)).loss.detach())
    assert last < 0.8 * first
    assert not is_live(model)
    assert all(torch.equal(one, learned[name]) for name, one in model.state_dict().items())
    assert float(model(**batches(0)).loss.detach()) == pytest.approx(last, abs=1e-3)
    assert rebuild(load_settings(tmp_path / "peers.toml")).trainer.digest().hex() == swarm.digest


def test_who_leaves_in_the_middle_goes_on_where_the_run_stands(join, model, batches):
    with join() as swarm:
        train(swarm, model, batches, steps=5)
        digest = swarm.digest
    again = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
    with seedflood.join(again, swarm.settings.node.state.parent / "peers.toml") as swarm:
        assert (swarm.step, swarm.digest) == (5, digest)
        assert len(train(swarm, again, batches)) == 7


def test_a_run_that_is_over_is_over_for_who_joins_again(join, model, batches):
    with join() as swarm:
        train(swarm, model, batches)
        digest = swarm.digest
    again = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
    with seedflood.join(again, swarm.settings.node.state.parent / "peers.toml") as swarm:
        assert swarm.is_over
        assert swarm.digest == digest
        assert list(swarm.share([[1], [2]])) == []
    for name, one in model.state_dict().items():
        assert torch.allclose(one, again.state_dict()[name], atol=1e-5)


def test_backward_passes_add_up_until_the_step(join, model, batches):
    """In halves, and as a whole: about the same gradient, in direction and size."""
    with join() as swarm:
        optimizer = swarm.optimizer()
        batch = batches(0)
        for half in (slice(0, 4), slice(4, 8)):
            model(**{name: one[half] for name, one in batch.items()}).loss.backward()
        halves = optimizer.param_groups[0]["params"][0].grad.clone()
        optimizer.zero_grad()
        (2 * model(**batch).loss).backward()
        whole = optimizer.param_groups[0]["params"][0].grad
        assert torch.nn.functional.cosine_similarity(halves, whole) > 0.95
        assert float(halves.norm() / whole.norm()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.float32, torch.float16])
def test_checkpoints_and_autocast_measure_about_the_same(write, batches, dtype, stored):
    model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=stored)
    with seedflood.join(model, write()) as swarm:
        (increments,) = swarm.optimizer().param_groups[0]["params"]
        model(**batches(0)).loss.backward()
        plain, increments.grad = increments.grad, None
        model.activation_checkpointing_enable()
        model.train()
        for module in model.modules():
            if hasattr(module, "dropout"):
                module.dropout = 0.0
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            model(**batches(0)).loss.backward()
        assert torch.nn.functional.cosine_similarity(plain, increments.grad) > 0.9


def test_losses_alone_measure_a_step_where_there_is_no_gradient(join, model, batches):
    with join(estimate="two-sided", steps=5) as swarm:
        optimizer, calls = swarm.optimizer(), []
        while not swarm.is_over:

            def closure():
                calls.append(swarm.step)
                return model(**batches(swarm.step)).loss

            assert optimizer.step(closure) > 0
        assert calls == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_a_run_of_losses_alone_asks_for_a_closure(join, model, batches):
    with join(estimate="two-sided") as swarm, pytest.raises(ConfigError, match=r"call step\(closure\)"):
        swarm.optimizer().step()


def test_a_closure_may_compute_the_gradient_as_for_any_optimizer(join, model, batches):
    with join(steps=2) as swarm:
        optimizer = swarm.optimizer()

        def closure():
            optimizer.zero_grad()
            loss = model(**batches(swarm.step)).loss
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > 0
        assert swarm.step == 1


def test_a_gradient_that_is_no_number_is_told_as_nothing(join, model, batches):
    with join(steps=2) as swarm:
        optimizer = swarm.optimizer()
        digest = swarm.digest
        (model(**batches(0)).loss * float("nan")).backward()
        optimizer.step()
        assert (swarm.step, swarm.digest) == (1, digest)


def test_wrong_steps_are_told_in_one_sentence_and_can_be_mended(join, model, batches):
    with join(steps=3) as swarm:
        optimizer, schedule = swarm.optimizer(), swarm.schedule()
        with pytest.raises(ConfigError, match=r"call loss\.backward\(\) before step"):
            optimizer.step()
        model(input_ids=batches(0)["input_ids"]).logits.mean().backward()
        with pytest.raises(ConfigError, match=r"call swarm\.report\(loss\)"):
            optimizer.step()
        swarm.report(torch.tensor(2.5))
        optimizer.step()
        assert swarm.step == 1
        assert swarm.loss == pytest.approx(2.5)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.param_groups[0]["lr"] = 1.0
        with pytest.raises(ConfigError, match="the learning rate belongs to the run"):
            optimizer.step()
        optimizer.param_groups[0]["lr"] = rate
        schedule.step()
        model(**batches(1)).loss.backward()
        optimizer.step()
        assert swarm.step == 2


def wrapped(model):
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))


def other(model):
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    return model


@pytest.mark.filterwarnings("ignore")  # of what wraps
@pytest.mark.parametrize(
    ("given", "keys", "sentence"),
    [
        (lambda _: torch.nn.Linear(2, 2), {}, "the model is a Linear"),
        (torch.compile, {}, "not one that is wrapped by PEFT, DDP or torch.compile"),
        (wrapped, {}, "PeftModel"),
        (lambda model: wrapped(model).base_model.model, {}, "has an adapter of PEFT"),
        (other, {}, "not the one that \\[run\\] model names"),
        (lambda model: model, {"task": "embedded"}, 'set task = "own"'),
        (lambda model: model.to(torch.float64), {}, "load it in float32, bfloat16, float16"),
    ],
)
def test_who_cannot_take_part_is_told_so_in_one_sentence(model, write, given, keys, sentence):
    with pytest.raises((ConfigError, ModelError), match=sentence) as told:
        seedflood.join(given(model), write(**keys))
    assert "\n" not in str(told.value)


def test_two_swarms_on_one_model_or_one_folder_are_refused(join, model, write):
    with join():
        with pytest.raises(ConfigError, match="takes part in another swarm"):
            seedflood.join(model, write())
        with pytest.raises(SeedfloodError, match="another seedflood process uses the state folder"):
            seedflood.join(AutoModelForCausalLM.from_pretrained(MODEL_FOLDER), write())


def test_a_running_event_loop_as_in_a_notebook_does_not_matter(join, model, batches):
    async def cell():
        with join(steps=3) as swarm:
            return train(swarm, model, batches)

    assert len(asyncio.run(cell())) == 3


def test_the_daemon_alone_says_what_is_missing(write):
    command = [programs() / "seedflood-node", "--peers", str(write())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 78
    assert "seedflood.join" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("keys", [{}, {"local_steps": 2}, {"delay": 1}, {"window": "strict"}], ids=str)
def test_epochs_end_while_a_script_trains_and_what_was_learned_is_in_the_weights(join, model, batches, tmp_path, keys):
    with join(steps=16, refresh_period=4, **keys) as swarm:
        train(swarm, model, batches)
        live = float(model(**batches(0)).loss.detach())
    rebuilt = rebuild(load_settings(tmp_path / "peers.toml")).trainer
    assert rebuilt.digest().hex() == swarm.digest
    assert float(model(**batches(0)).loss.detach()) == pytest.approx(live, abs=1e-3)
    wanted = rebuilt.replica.weights()
    for name, one in model.state_dict().items():
        assert torch.allclose(one.float(), wanted[name], rtol=1e-3, atol=1e-4), name  # it is of half precision


def test_a_step_takes_the_gradient_whoever_resets_it(join, model, batches):
    """Trainers reset the gradients of the model's own parameters alone."""
    with join(steps=3) as swarm:
        optimizer = swarm.optimizer()
        (increments,) = optimizer.param_groups[0]["params"]
        model(**batches(0)).loss.backward()
        optimizer.step()
        assert increments.grad is None


def test_a_model_in_a_swarm_takes_no_weights_from_elsewhere(join, model, batches):
    """A trainer that resumes from a checkpoint would give this host other weights than the others have."""
    with join(steps=2) as swarm:
        with pytest.raises(ConfigError, match="without a checkpoint"):
            model.load_state_dict(model.state_dict())
        train(swarm, model, batches)
    model.load_state_dict(model.state_dict())


def test_the_export_is_the_same_within_the_block_and_after_it(join, model, batches, tmp_path):
    with join(steps=6) as swarm:
        train(swarm, model, batches)
        swarm.export(tmp_path / "within")
        model.save_pretrained(tmp_path / "saved")
        swarm.export_adapter(tmp_path / "adapter")
    swarm.export(tmp_path / "after")
    within, after = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("within", "after"))
    assert all(torch.allclose(one.float(), after[name].float(), atol=1e-6) for name, one in within.items())
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").state_dict()
    for name, one in saved.items():
        torch.testing.assert_close(one.float(), after[name].float(), rtol=2e-3, atol=1e-4)  # it is of half precision
    model.save_pretrained(tmp_path / "plain")
    with pytest.raises(ConfigError, match="before the block ends"):
        swarm.export_adapter(tmp_path / "late")


def test_both_sides_of_a_measurement_draw_the_same_dropout(join, model, batches):
    with join(estimate="two-sided", steps=3) as swarm:
        model.train()
        drawn = []

        def closure():
            drawn.append(float(torch.rand(())))
            return model(**batches(0)).loss

        for _ in range(2):
            swarm.optimizer().step(closure)
        assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


def test_a_fault_of_the_node_reaches_the_script_and_the_model_comes_back_plain(join, model, batches):
    with join(steps=30) as swarm:
        train(swarm, model, batches, steps=2)
        daemon = swarm._host._daemon
        daemon.loop.call_soon_threadsafe(daemon.failed, OSError("the disk broke"))
        with pytest.raises(OSError, match="the disk broke"):
            train(swarm, model, batches)
    assert not is_live(model)
    assert not swarm.is_over


@pytest.mark.parametrize("is_training", [True, False])
def test_a_model_comes_back_as_it_came(join, model, batches, is_training):
    model.train(is_training)
    model.config.use_cache = True
    with join(steps=2) as swarm:
        assert model.training is is_training
        train(swarm, model, batches)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.config.use_cache


def test_whoever_was_refused_can_join_with_the_same_model(model, write, batches):
    path = write(steps=2)
    with seedflood.join(AutoModelForCausalLM.from_pretrained(MODEL_FOLDER), path):
        pass
    write(steps=3)  # another run in the same folder
    with pytest.raises(SeedfloodError):
        seedflood.join(model, path)
    assert not is_live(model)
    assert all(parameter.requires_grad for parameter in model.parameters())
    write(steps=2)
    with seedflood.join(model, path) as swarm:
        train(swarm, model, batches)
    assert swarm.is_over


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_may_be_loaded_in_any_precision(write, batches, dtype):
    model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=dtype)
    with seedflood.join(model, write(steps=3)) as swarm:
        assert len(train(swarm, model, batches)) == 3


def test_a_run_that_was_left_in_the_middle_is_not_over(join, model, batches):
    with join() as swarm:
        train(swarm, model, batches, steps=2)
    assert not swarm.is_over


def test_a_refused_model_stays_in_its_mode(model, write):
    model.train()
    with pytest.raises(ModelError):
        seedflood.join(other(model), write())
    assert model.training


def test_a_finished_run_prints_nothing_when_it_is_joined_again(join, model, batches, capfd):
    with join(steps=2) as swarm:
        train(swarm, model, batches)
    again = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
    with seedflood.join(again, swarm.settings.node.state.parent / "peers.toml"):
        pass
    assert capfd.readouterr().out == ""


def test_rows_follow_the_step_that_is_due(join, model, batches):
    """In one life, and in the next one: of 32 rows no two batches of four share one in the first eight steps."""

    def drawn(swarm, steps):
        seen = []
        for batch in swarm.share(torch.utils.data.DataLoader(range(32), batch_size=4)):
            seen.append(batch.tolist())
            model(**batches(0)).loss.backward()
            swarm.optimizer().step()
            if len(seen) == steps:
                break
        return seen

    base = {name: one.clone() for name, one in model.state_dict().items()}
    with join() as swarm:
        first = drawn(swarm, 3)
    model.load_state_dict(base)
    with seedflood.join(model, swarm.settings.node.state.parent / "peers.toml") as swarm:
        rest = drawn(swarm, 5)
    assert sorted(row for batch in [*first, *rest] for row in batch) == list(range(32))


def test_a_host_that_has_left_takes_no_more_steps(join, model, batches):
    with join() as swarm:
        train(swarm, model, batches, steps=2)
    with pytest.raises(ConfigError, match="has left the run"):
        swarm.optimizer().step(lambda: model(**batches(0)).loss)
    with pytest.raises(ConfigError, match="has left the run"):
        next(swarm.share([[1], [2], [3], [4]]))


def test_a_model_within_a_module_is_saved_as_it_computes(join, model, batches):
    wrapper = torch.nn.ModuleDict({"lm": model})
    with join() as swarm:
        train(swarm, model, batches, steps=3)
        learned = {f"lm.{name}": one for name, one in model.state_dict().items()}
        state = wrapper.state_dict()
    assert state.keys() == learned.keys()
    assert all(torch.equal(one, learned[name]) for name, one in state.items())


def test_the_weights_of_a_script_are_not_quantised(write, model):
    with pytest.raises(ConfigError, match="load it in bfloat16"):
        seedflood.join(model, write({"dtype": "int8"}))
    assert not is_live(model)


def test_batches_that_end_before_the_run_are_noticed(join, model, batches, capfd):
    with join(steps=12) as swarm:
        for _ in swarm.share([0, 1, 2]):
            model(**batches(0)).loss.backward()
            swarm.optimizer().step()
        assert swarm.step == 3
    assert "the batches are over before the run is" in capfd.readouterr().err


def test_what_was_learned_is_in_the_model_though_the_last_job_takes_long(join, model, batches, monkeypatch):
    monkeypatch.setattr("seedflood.host.daemon.COMPUTE_SECONDS", 0.0)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    goes_on = threading.Event()
    with join() as swarm:
        train(swarm, model, batches, steps=3)
        swarm._host._ask(lambda: swarm._host._daemon._compute.run(goes_on.wait))  # behind the step that is lent
        threading.Timer(0.5, goes_on.set).start()
    assert not is_live(model)
    assert not all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_an_export_that_could_not_be_written_is_an_error_of_the_script(model, write, batches, tmp_path):
    swarm = seedflood.join(model, write({"export": str(tmp_path / "out" / "model")}, steps=2))
    train(swarm, model, batches, steps=1)
    (tmp_path / "out").write_text("a file in the way")
    train(swarm, model, batches)
    with pytest.raises(SeedfloodError, match="out"):
        swarm.close()
    assert not is_live(model)
    swarm.close()


def test_the_logging_of_a_script_stays_as_it_is(join, capfd):
    before = structlog.get_config()
    lines = []
    structlog.configure(processors=[lambda _, __, event: lines.append(event["event"]) or str(event)])
    try:
        with join():
            structlog.get_logger().info("within")
        structlog.get_logger().info("after")
    finally:
        structlog.configure(**before)
    assert lines == ["within", "after"]
    assert "node=node" in capfd.readouterr().err


def test_a_host_that_sends_no_step_is_told_which_optimizer_trains(join, capfd):
    with join():
        pass
    assert "train by swarm.optimizer()" in capfd.readouterr().err


def test_settings_that_a_script_decides_are_named(model, write, capfd):
    with seedflood.join(model, write({"micro_batch": 2})):
        pass
    assert "micro_batch" in capfd.readouterr().err


def test_a_function_without_a_loss_is_refused(join):
    with join(estimate="two-sided", steps=5) as swarm, pytest.raises(ConfigError, match="let it return the loss"):
        swarm.optimizer().step(lambda: None)


def test_a_file_that_is_not_there_is_named(model, tmp_path):
    with pytest.raises(ConfigError, match=r"there is no .*nowhere\.toml: give join"):
        seedflood.join(model, tmp_path / "nowhere.toml")


def test_an_adapter_says_how_it_is_loaded(join, model, batches, tmp_path):
    with join() as swarm:
        train(swarm, model, batches, steps=2)
        card = (swarm.export_adapter(tmp_path / "adapter") / "README.md").read_text()
        with pytest.raises(ConfigError, match="rank of 1 or more"):
            swarm.export_adapter(tmp_path / "none", rank=0)
    assert "library_name: peft" in card
    assert "PeftModel.from_pretrained" in card


def test_of_two_nodes_in_one_process_the_one_that_stays_goes_on_logging(capfd):
    leave_first, leave_second = log_beside("first"), log_beside("second")
    leave_first()
    log.info("still here")
    leave_second()
    log.info("nobody is here")
    said = capfd.readouterr().err
    assert "node=second" in said
    assert "nobody is here" not in said
