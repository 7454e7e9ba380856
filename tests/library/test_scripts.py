"""Scripts as processes, linked over loopback: killed, late, faulty, and those of examples/."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import programs

from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, spell

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"

TRL = ("datasets", "trl.trainer.sft_trainer", "trl.trainer.dpo_trainer", "trl.trainer.grpo_trainer")
"""What its scripts import."""

LOOP = """
import signal
import sys
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
import seedflood
from seedflood.embedded import MODEL_FOLDER, texts

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts in the background may ignore it
model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)
def collate(rows):
    tokens = tokenizer([row["text"] for row in rows], return_tensors="pt", padding=True)
    return {**tokens, "labels": tokens.input_ids}
with seedflood.join(model, sys.argv[1]) as swarm:
    optimizer = swarm.optimizer()
    print("joined", swarm.step, flush=True)
    for batch in swarm.share(DataLoader(texts("train")[:256], batch_size=4, collate_fn=collate)):
        if 0 <= int(sys.argv[2]) <= swarm.step:  # a host that is late may skip a step
            raise ValueError("a fault of the script")
        if swarm.step == int(sys.argv[3]):
            sys.stdin.readline()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("hosts", swarm.hosts)
        print("step", swarm.step, flush=True)
print("digest", swarm.digest)
"""


class Script:
    """One host. said: its lines on stdout so far. fails_at: the step with a fault. holds_at: the step at which it waits
    for `go_on`."""

    def __init__(self, peers: Path, fails_at: int = -1, holds_at: int = -1, program: str = LOOP) -> None:
        self.said: list[str] = []
        self.log = peers.with_name("log")
        command = [str(programs() / "python"), "-c", program, str(peers), str(fails_at), str(holds_at)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                cwd=peers.parent,
            )

    def until(self, pattern: str) -> str:
        """The next line that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if re.match(pattern, line):
                return line.split()[-1]
        raise AssertionError(f"no line {pattern}: {self.said[-5:]} {self.log.read_text()[-3000:]}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            return
        self.process.kill()
        self.process.stdout.read()  # it has ended when nobody can write there
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def end(self) -> int:
        assert self.process.stdout is not None
        self.said += self.process.stdout
        return self.process.wait()


class Hosts:
    """Scripts of one run, each with a folder, linked with the first one."""

    def __init__(self, home: Path, steps: int, clients: int, patience_seconds: float = 60.0) -> None:
        self.home, self.ports, self.started = home, reserve_ports(clients), list[Script]()
        self.patience = patience_seconds
        keys = {"task": "own", "estimate": "gradient", "rank": 4, "clients": clients, "steps": steps}
        self.run = RunSettings.place(keys)

    def start(self, number: int, fails_at: int = -1, holds_at: int = -1, program: str = LOOP) -> Script:
        folder = self.home / f"host-{number}"
        folder.mkdir(exist_ok=True)
        listen = f"127.0.0.1:{self.ports[number]}"
        node = {"name": folder.name, "listen": listen, "http": "", "threads": 1, "patience_seconds": self.patience}
        peers = [{"address": f"127.0.0.1:{self.ports[0]}"}] if number else []
        (folder / "peers.toml").write_text(spell({"run": self.run, "node": node, "peers": peers}))
        self.started.append(Script(folder / "peers.toml", fails_at, holds_at, program))
        return self.started[-1]


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    made = Hosts(tmp_path, *request.param)
    yield made
    for script in made.started:
        script.kill()


@pytest.mark.parametrize("hosts", [(60, 2)], indirect=True)
def test_a_script_that_was_killed_goes_on_at_the_step_of_the_swarm(hosts: Hosts):
    a, b = hosts.start(0, holds_at=30), hosts.start(1)
    b.until(r"step \d\d")
    b.kill()
    step = int(a.until("step"))
    again = hosts.start(1)
    joined = int(again.until("joined"))
    assert joined >= 10
    assert joined >= step - 10
    a.go_on()
    digests = [script.until("digest") for script in (a, again)]
    assert digests[0] == digests[1]
    assert [script.end() for script in (a, again)] == [0, 0]


WITHOUT_A_BLOCK = """
import sys, seedflood, torch
from transformers import AutoModelForCausalLM
from seedflood.embedded import MODEL_FOLDER
model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
swarm = seedflood.join(model, sys.argv[1])
tokens = torch.ones(1, 4, dtype=torch.long)
for _ in range(3):
    model(input_ids=tokens, labels=tokens).loss.backward()
    swarm.optimizer().step()
"""


@pytest.mark.parametrize("hosts", [(4000, 2)], indirect=True)
def test_a_script_that_ends_without_a_block_says_goodbye(hosts: Hosts):
    a = hosts.start(0)
    b = hosts.start(1, program=WITHOUT_A_BLOCK)
    assert b.end() == 0
    a.until("hosts 1$")
    assert "member left" in a.log.read_text()


@pytest.mark.parametrize("hosts", [(4000, 2)], indirect=True)
def test_a_script_that_ends_while_it_waits_for_others_leaves_nothing_behind(hosts: Hosts):
    alone = hosts.start(0, program=WITHOUT_A_BLOCK)
    wait_for(alone.log, "started")
    alone.process.send_signal(signal.SIGTERM)
    assert alone.end() == 128 + signal.SIGTERM
    assert "Traceback" not in alone.log.read_text()


def wait_for(log: Path, word: str) -> None:
    """Until the log has a line with this word."""
    tail = subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE, text=True)
    try:
        assert tail.stdout is not None
        assert any(word in line for line in tail.stdout)
    finally:
        tail.kill()
        tail.communicate()


@pytest.mark.parametrize("hosts", [(90, 3, 10.0)], indirect=True)
def test_hosts_go_on_without_a_faulty_script_and_with_a_late_one(hosts: Hosts):
    a, b = hosts.start(0, holds_at=20), hosts.start(1, fails_at=8)
    b.until("joined")
    assert b.end() == 1
    assert "ValueError: a fault of the script" in b.log.read_text()
    late = hosts.start(2)
    late.until("joined")
    a.go_on()  # else the run might be over before anybody is late
    digests = [script.until("digest") for script in (a, late)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("hosts", [(60, 2)], indirect=True)
def test_nobody_trains_alone_where_all_scripts_had_a_fault_at_the_first_step(hosts: Hosts):
    assert [script.end() for script in (hosts.start(0, fails_at=0), hosts.start(1, fails_at=0))] == [1, 1]
    a = hosts.start(0)
    b = hosts.start(1)
    a.until("hosts 2$")
    digests = [script.until("digest") for script in (a, b)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("hosts", [(30, 2)], indirect=True)
def test_who_had_a_fault_gets_the_model_from_a_host_that_has_ended_and_is_started_again(hosts: Hosts):
    a, b = hosts.start(0), hosts.start(1, fails_at=8)
    digest = a.until("digest")
    assert [script.end() for script in (a, b)] == [0, 1]
    late, again = hosts.start(1), hosts.start(0)
    assert [script.until("digest") for script in (late, again)] == [digest, digest]


@pytest.mark.parametrize("hosts", [(4000, 2)], indirect=True)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 1)],
)
def test_a_script_that_is_told_to_end_says_goodbye(hosts: Hosts, number: signal.Signals, code: int):
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP, and what it starts does so, too
    try:
        a, b = hosts.start(0), hosts.start(1)
    finally:
        signal.signal(number, before)
    a.until("hosts 2$")
    b.until("step 5")
    b.process.send_signal(number)
    assert b.end() == code, b.log.read_text()[-3000:]
    assert b.log.read_text().rstrip().endswith("KeyboardInterrupt") == (number == signal.SIGINT)
    a.until("hosts 1$")
    assert "member left" in a.log.read_text()


@pytest.mark.parametrize("name", ["own_loop.py", "trl_sft.py", "trl_dpo.py", "trl_grpo.py"])
def test_the_scripts_of_the_examples_end_with_one_digest(name: str):
    python = programs(*(TRL if name.startswith("trl") else ())) / "python"
    command = [python, str(EXAMPLES / "on_two.py"), str(EXAMPLES / name), "12"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    digests = re.findall(r"digest (\w{64})", done.stdout)
    assert len(digests) == 2
    assert len(set(digests)) == 1
