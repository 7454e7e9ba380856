"""Three daemons on a ring, and a member with a valid key that does its worst to one of them, kind after kind.

The liar is an independent implementation (`client.mjs`: Node.js, grpc-js, the project's .proto, signatures by
node:crypto). What is judged is the daemons' own word: how late their loops were, how much memory they hold, and that
windows close.

Lateness needs a machine that is not late by itself, so the same daemons are first watched in peace. Where none of their
looks at the loop was late by more than 50 ms then, and the machine has a core for everybody, none may be late by more
than 100 ms beside a liar; on a busy one, where it is not the liar who makes them late, three in a hundred may.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from members import HERE, PROTO, statement_layout
from processes import Host, Hosts, ring
from prometheus_client.parser import text_string_to_metric_families

from seedflood.operations.http_address import HTTP_FILE
from seedflood.protocol.swarm.messages import Hello
from seedflood.training.seedflood.trainer import Trainer

KINDS = (
    "sums", "digests", "frontiers", "statements", "equivocation", "replays", "future", "forgeries",
    "oversize", "pulls", "watches", "halves", "garbage", "pings", "deafness", "strangers",
)  # fmt: skip
SECONDS = 5
TRIES = 16
SEED = bytes(range(32))
"""Of the liar's key: it is one member, whatever it does."""

LATE_SECONDS_MAX = 0.1
BUSY_SHARE = 0.97
MEMORY_BYTES_MAX = 64 << 20
WINDOWS_MIN = 5
"""So many close on every host while it is lied to."""

RUN = {"clients": 3, "steps": 1_000_000, "window": "bounded", "refresh_period": 100}

pytestmark = [pytest.mark.system, pytest.mark.long]


@dataclass(frozen=True)
class Look:
    """A host at one moment. lags: how many looks at the loop were late by no more than each bound."""

    step: float
    memory: float
    is_ready: bool
    lags: dict[float, float]

    def lateness_since(self, before: "Look", share: float = 1.0) -> float:
        """The bound that this share of the looks was within."""
        fresh = {bound: count - before.lags[bound] for bound, count in self.lags.items()}
        return min(bound for bound, count in fresh.items() if count >= share * fresh[float("inf")])


def look(host: Host) -> Look:
    address = json.loads((host.settings.node.state / HTTP_FILE).read_text())["address"]
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/metrics")
    families = {
        one.name: one.samples for one in text_string_to_metric_families(connection.getresponse().read().decode())
    }
    connection.close()
    lags = {
        float(sample.labels["le"]): sample.value
        for sample in families["seedflood_event_loop_lag_seconds"]
        if sample.name.endswith("_bucket")
    }
    return Look(
        families["seedflood_window_step"][0].value,
        families["process_resident_memory_bytes"][0].value,
        families["seedflood_ready"][0].value == 1,
        lags,
    )


class Watch:
    """Looks at hosts again and again, for peaks."""

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts
        self.before = list(map(look, hosts))
        self.memory = [0.0] * len(hosts)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._end.wait(0.25):
            for k, host in enumerate(self.hosts):
                self.memory[k] = max(self.memory[k], look(host).memory)

    def finish(self, share: float = 1.0) -> tuple[list[Look], list[float]]:
        """How they are now, and within what bound this share of their looks was."""
        self._end.set()
        self._thread.join()
        after = list(map(look, self.hosts))
        return after, [now.lateness_since(before, share) for now, before in zip(after, self.before, strict=True)]


@dataclass(frozen=True)
class Swarm:
    """facts: what a member of the run knows. memory, lateness: in peace."""

    hosts: list[Host]
    facts: str
    memory: list[float]
    lateness: float


@pytest.fixture(scope="module")
def swarm(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    made = Hosts(tmp_path_factory.mktemp("liars"))
    hosts = made.make(3, ring(3), RUN, {"http": "127.0.0.1:0", "start_seconds": 60.0, "progress_seconds": 1})
    try:
        origins = [str(int(host.start().wait_for("started")["origin"], 16)) for host in hosts]
        for host in hosts:
            host.wait_for("progress", step=50)
        watch = Watch(hosts)
        for host in hosts:
            host.wait_for("progress", step=host.step + 100)
        after, lateness = watch.finish()
        assert all(one.is_ready for one in after)
        settings = hosts[0].settings
        trainer = Trainer(settings.run, settings.node)
        facts = {
            "run_id": settings.run.run_id().hex(),
            "base_digest": trainer.base_digest.hex(),
            "epoch_bytes": trainer.epoch_bytes,
            "protocol_version": Hello.__dataclass_fields__["protocol_version"].default,
            "seed": SEED.hex(),
            "run_seed": str(settings.run.seed),
            "statement": statement_layout(),
            "steps": settings.run.steps,
            "refresh_period": settings.run.seedflood.refresh_period,
            "origins": origins,
        }
        yield Swarm(hosts, json.dumps(facts), watch.memory, max(lateness))
    finally:
        made.close()


def lie(swarm: Swarm, kind: str) -> dict[str, object]:
    """Lies for SECONDS; again, as long as all that comes of it is that the liar before it is still kept out."""
    for _ in range(TRIES):
        said = lie_once(swarm, kind)
        if said["links"] or "budget" not in json.dumps(said["ends"]):
            break
    return said


def lie_once(swarm: Swarm, kind: str) -> dict[str, object]:
    address = swarm.hosts[0].settings.node.listen
    command = ["node", str(HERE / "client.mjs"), str(PROTO), swarm.facts, address, kind, str(SECONDS)]
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []  # a liar elsewhere would not take this machine's time
    done = subprocess.run([*nice, *command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_member_does_the_honest_go_on(swarm: Swarm, kind: str) -> None:
    watch = Watch(swarm.hosts)
    said = lie(swarm, kind)
    has_room = os.getloadavg()[0] <= (os.cpu_count() or 1)  # for the daemons, the liar, and whoever else is there
    is_quiet = has_room and swarm.lateness <= LATE_SECONDS_MAX / 2
    after, lateness = watch.finish(1.0 if is_quiet else BUSY_SHARE)
    grown = [now - peace for now, peace in zip(watch.memory, swarm.memory, strict=True)]
    windows = [now.step - before.step for now, before in zip(after, watch.before, strict=True)]
    report = {"said": said, "late": lateness, "late in peace": swarm.lateness, "windows": windows}
    report["megabytes"] = [round(size / (1 << 20), 1) for size in grown]
    print(json.dumps(report), file=sys.stderr)
    assert said["frames" if kind in ("watches", "halves") else "links"], f"the liar could not even begin: {said}"
    assert min(windows) >= WINDOWS_MIN, report
    assert max(grown) <= MEMORY_BYTES_MAX, report
    assert max(lateness) <= LATE_SECONDS_MAX, report


def test_afterwards_all_are_ready_and_agree(swarm: Swarm) -> None:
    for host in swarm.hosts:
        host.listen()
    for host in swarm.hosts:
        host.wait_for("progress", step=host.step + 50)
    assert all(look(host).is_ready for host in swarm.hosts)
    assert not any(line.get("was_wrong") for host in swarm.hosts for line in host.events)
