"""What daemons tell of themselves while somebody outside of Python is at them."""

import contextlib
import http.client
import json
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from members import PROTO, statement_layout
from processes import Host
from prometheus_client.parser import text_string_to_metric_families

from seedflood.operations.http_address import HTTP_FILE
from seedflood.protocol.swarm.messages import Hello
from seedflood.training.seedflood.trainer import Trainer


@dataclass(frozen=True)
class Look:
    """A host at one moment.

    values: every sample, by its name and its reason or peer, if it has one. lags: how many looks at the loop were late
    by no more than each bound.
    """

    values: dict[str, float]
    lags: dict[float, float]

    @property
    def step(self) -> float:
        return self.values["seedflood_window_step"]

    @property
    def memory(self) -> float:
        return self.values["process_resident_memory_bytes"]

    @property
    def is_ready(self) -> bool:
        return self.values["seedflood_ready"] == 1

    @property
    def open_files(self) -> float:
        return self.values["process_open_fds"]

    @property
    def peer_faults(self) -> float:
        return sum(value for name, value in self.values.items() if name.startswith("seedflood_peer_faults_total"))

    def gain(self, before: "Look", name: str) -> float:
        """What a counter has gained."""
        return self.values.get(name, 0.0) - before.values.get(name, 0.0)

    def lateness_since(self, before: "Look", share: float = 1.0) -> float:
        """The bound that this share of the looks was within."""
        fresh = {bound: count - before.lags[bound] for bound, count in self.lags.items()}
        return min(bound for bound, count in fresh.items() if count >= share * fresh[float("inf")])


def http_address(host: Host) -> str:
    return str(json.loads((host.settings.node.state / HTTP_FILE).read_text())["address"])


def look(host: Host) -> Look:
    with contextlib.closing(http.client.HTTPConnection(http_address(host), timeout=60)) as connection:
        connection.request("GET", "/metrics")
        families = list(text_string_to_metric_families(connection.getresponse().read().decode()))
    values, lags = {}, {}
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == "seedflood_event_loop_lag_seconds_bucket":
            lags[float(sample.labels["le"])] = sample.value
        elif set(sample.labels) <= {"reason"} or set(sample.labels) == {"peer"}:
            values[" ".join([sample.name, *sample.labels.values()])] = sample.value
    return Look(values, lags)


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

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def finish(self, share: float = 1.0) -> tuple[list[Look], list[float]]:
        """How they are now, and within what bound this share of their looks was."""
        self.stop()
        after = list(map(look, self.hosts))
        return after, [now.lateness_since(before, share) for now, before in zip(after, self.before, strict=True)]


def facts_of(host: Host) -> dict[str, object]:
    """What a member of its run knows."""
    settings = host.settings
    trainer = Trainer(settings.run, settings.node)
    return {
        "run_id": settings.run.run_id().hex(),
        "base_digest": trainer.base_digest.hex(),
        "epoch_bytes": trainer.replica.epoch_bytes,
        "protocol_version": Hello.__dataclass_fields__["protocol_version"].default,
        "statement": statement_layout(),
        "steps": settings.run.steps,
        "refresh_period": settings.run.seedflood.refresh_period,
    }


def run_client(script: Path, *words: str) -> dict[str, object]:
    """Runs a client to its end and returns what it says of itself."""
    nice = ["nice", "-n", "4"] if shutil.which("nice") else []  # elsewhere it would not take this machine's time
    command = [*nice, "node", str(script), str(PROTO), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
