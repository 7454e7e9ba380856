"""One host over two processes: what it ends with is what one process ends with, and what becomes of it if one dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from forks import programs
from processes import Host, Hosts
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

from seedflood import embedded
from seedflood.cluster.ports import reserve_ports
from seedflood.errors import ExitCode, RankError
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

RUN = {"steps": 8, "refresh_period": 3, "batch_size": 8, "clients": 1, "train_examples": 64}
NODE = {"device": "cpu", "http": "", "evaluate_every": 0, "evaluate_examples": 16}


BY_REWARD = {"task": "reward", "max_new_tokens": 3, "group": 8, "batch_size": 5}


def write_prompts(path: Path) -> None:
    """Beginnings of reviews, after which the model writes "but" or "even" (though) about as often."""
    texts = (row["text"].partition(" , ") for row in embedded.texts("train"))
    prompts = islice((f"{head} ," for head, _, rest in texts if rest.startswith(("but", "even"))), 64)
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": "even"}) + "\n" for prompt in prompts))


def write_mixture(folder: Path) -> Path:
    """A random model of which a token uses two of four experts, with the words of the embedded model."""
    tokenizer = AutoTokenizer.from_pretrained(embedded.MODEL_FOLDER)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        moe_intermediate_size=8,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make(hosts: Hosts, run: dict[str, Any], **node: Any) -> Host:
    """A host with a key."""
    (host,) = hosts.make(1, [], RUN | run, NODE | {"export": str(hosts.folder / "model")} | node)
    state = host.folder / "state"
    state.mkdir()
    Identity.load_or_create(state / KEY_FILE)
    return host


def second(host: Host) -> Host:
    """Its second process; what that says goes elsewhere."""
    folder = host.folder.parent / "second"
    folder.mkdir(exist_ok=True)
    shutil.copy(host.folder / "peers.toml", folder)
    return Host(folder)


def as_torchrun(count: int) -> dict[str, str]:
    """What torchrun puts into the environment of each of so many processes, but for their numbers."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(reserve_ports(1)[0]),
        "WORLD_SIZE": str(count),
        "TORCHELASTIC_RUN_ID": "none",
    }


def start(ranks: list[Host]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in as_torchrun(len(ranks)).items():
            patch.setenv(name, value)
        for number, rank in enumerate(ranks):
            patch.setenv("RANK", str(number))
            patch.setenv("LOCAL_RANK", str(number))
            rank.start()


def outcome(host: Host) -> tuple[Any, ...]:
    result = host.result()
    model = Path(host.settings.node.export or "") / "model.safetensors"
    return result["digest"], result["loss_before"], result["loss_after"], model.read_bytes()


def outcome_of_one_process(host: Host) -> tuple[Any, ...]:
    """Afterwards the host may begin again, with the same key and without what it has learned."""
    host.start()
    assert host.end() == ExitCode.OK
    expected = outcome(host)
    for path in (host.folder / "state").iterdir():
        if path.name != KEY_FILE:
            path.unlink()
    shutil.rmtree(host.folder.parent / "model", ignore_errors=True)
    return expected


@pytest.mark.parametrize("estimate", ["gradient", "two-sided"])
def test_two_processes_end_with_what_one_ends_with(hosts: Hosts, estimate: str):
    host = make(hosts, {"estimate": estimate})
    expected = outcome_of_one_process(host)
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    assert outcome(host) == expected
    assert other.events == []
    other.close()


def test_two_processes_share_the_experts_of_a_mixture(hosts: Hosts, tmp_path: Path):
    host = make(hosts, {"estimate": "gradient", "model": str(write_mixture(tmp_path / "mixture"))})
    expected = outcome_of_one_process(host)
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    assert outcome(host) == expected
    other.close()


def test_two_processes_with_few_bits_end_near_what_one_ends_with(hosts: Hosts):
    host = make(hosts, {"estimate": "gradient"}, dtype="int8")
    *expected, _ = outcome_of_one_process(host)
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    *ended, _ = outcome(host)
    assert ended[1:] == pytest.approx(expected[1:], abs=1e-3)
    other.close()


def test_two_processes_learn_from_what_both_write(hosts: Hosts):
    rows = hosts.folder / "rows.jsonl"
    write_prompts(rows)
    run = {**BY_REWARD, "max_new_tokens": 1, "steps": 16, "learning_rate": 0.1}
    host = make(hosts, run, data=str(rows))
    *expected, _ = outcome_of_one_process(host)
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    *ended, _ = outcome(host)
    assert ended[1:] == pytest.approx(expected[1:], abs=1e-3)
    assert ended[2] < ended[1] - 0.1, "it lacks less of the reward"
    assert other.events == []
    other.close()


@pytest.mark.gpu
def test_two_gpus_end_near_what_one_ends_with(hosts: Hosts):
    import torch  # the other tests need none in this process

    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    host = make(hosts, {"estimate": "gradient"}, device="auto", dtype="float32")
    *expected, _ = outcome_of_one_process(host)
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    *ended, _ = outcome(host)
    assert ended[1:] == pytest.approx(expected[1:], abs=1e-3)
    other.close()


def test_a_host_of_which_a_process_dies_goes_on_from_its_journal(hosts: Hosts):
    host = make(hosts, {"estimate": "gradient", "steps": 24})
    expected = outcome_of_one_process(host)
    other = second(host)
    for dies, stays in ((other, host), (host, other)):
        host.listen()
        start([host, other])
        host.wait_for("progress", step=3)
        dies.kill()
        assert stays.end() == ExitCode.TRY_AGAIN
        assert stays.has_said(str(RankError()))
    host.listen()
    start([host, other])
    assert host.wait_for("started")["step"] >= 3
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    assert outcome(host) == expected
    other.close()


@pytest.mark.parametrize("is_by_reward", [False, True])
def test_both_processes_leave_when_they_are_stopped(hosts: Hosts, is_by_reward: bool):
    rows = hosts.folder / "rows.jsonl"
    write_prompts(rows)
    run, node = ({**BY_REWARD, "max_new_tokens": 32}, {"data": str(rows)}) if is_by_reward else ({}, {})
    host = make(hosts, {"estimate": "gradient", "steps": 100_000, **run}, **node)
    other = second(host)
    start([host, other])
    host.wait_for("progress", step=2)
    other.signal(signal.SIGTERM)  # it is for rank 0
    host.signal(signal.SIGTERM)
    assert [host.end(), other.end()] == [ExitCode.OK, ExitCode.OK]
    assert other.events == []
    other.close()


def test_what_several_processes_cannot_do_is_refused_before_the_model_is_loaded(hosts: Hosts):
    host = make(hosts, {}, device="cuda:1")
    other = second(host)
    start([host, other])
    assert [host.end(), other.end()] == [ExitCode.CONFIG, ExitCode.CONFIG]
    assert 'cannot do device = "cuda:1": start it as one process' in host.last_words
    other.close()


@pytest.mark.long
def test_torchrun_starts_a_host_again_of_which_a_process_died(hosts: Hosts):
    host = make(hosts, {"estimate": "gradient", "steps": 24})
    expected = outcome_of_one_process(host)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    host.command = (*torchrun, "-m", "seedflood", "--peers", str(host.folder / "peers.toml"))
    host.listen()
    host.start()
    host.wait_for("progress", step=3)
    assert host.process is not None
    os.kill(rank_of(host.process.pid, 1), signal.SIGKILL)
    assert host.wait_for("started")["step"] >= 3
    assert host.end() == ExitCode.OK
    assert outcome(host) == expected


@pytest.mark.parametrize("ahead", [None, 0, 2])
def test_a_trainer_of_two_processes_is_made_again_as_that_of_one_is(tmp_path: Path, ahead: int | None):
    """As when the memory of a host holds something else than its journal. ahead: None: it learns from labels."""
    run = {} if ahead is None else {**BY_REWARD, "ahead": ahead}
    write_prompts(tmp_path / "rows.jsonl")
    program = [programs() / "python", Path(__file__).with_name("rank_trainer.py"), json.dumps(run)]

    def begin(**environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(program, cwd=tmp_path, env=os.environ | environment, stdout=subprocess.PIPE, text=True)

    learned, made_again = json.loads(begin().communicate()[0])
    assert made_again == learned
    address = as_torchrun(2)
    first, second = (begin(**address, RANK=rank) for rank in ("0", "1"))
    try:
        assert json.loads(first.communicate()[0]) == [learned, learned]
    finally:
        second.kill()
        second.communicate()


def rank_of(agent: int, rank: int) -> int:
    """The process of a rank that torchrun has started."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    return next(int(one) for one in children if f"RANK={rank}" in Path(f"/proc/{one}/environ").read_text().split("\0"))
