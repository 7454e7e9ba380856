"""How a node starts on a long journal: do its probes answer meanwhile, and what does it hold in memory?

The journal is that of a node that has received everything live: a row per bundle. Nothing in it is closed. Nobody is
linked, so nothing is pulled. The same node is started on an empty journal before: what memory and probes cost anyway.
"""

import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Metric, make_metric
from benchmarks.processes import Cluster, NodeProcess
from seedflood.cluster.ports import reserve_ports
from seedflood.config import RunSettings, load_settings
from seedflood.host.places import JOURNAL_FILE
from seedflood.protocol.seedflood.bundles import LOSS_MAX, Bundle, make_bundle
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.loading import load_base

BUNDLES = int(os.environ.get("SEEDFLOOD_OPENING_BUNDLES", "1_000_000"))
ORIGINS = 64
APPENDED_STEPS = 64
PROBE_SECONDS = 0.01
ANSWER_SECONDS_MAX = 0.1
IDLE_SECONDS = 2.0
WAIT_SECONDS_MAX = 3600.0


def run() -> dict[str, Metric]:
    with TemporaryDirectory(prefix="seedflood-opening-") as home:
        (port,) = reserve_ports(1)
        settings = {"clients": ORIGINS, "steps": 1 + BUNDLES // ORIGINS, "window": "bounded"}
        with Cluster(Path(home), 1, (), run=settings, node={"http": f"127.0.0.1:{port}"}) as cluster:
            (node,) = cluster.nodes
            empty = _open(node, port)
            _fill(node)
            long = _open(node, port)
    return {
        "opening.bundles": make_metric([float(BUNDLES)]),
        "opening.started_seconds": make_metric([long[0]]),
        "opening.applied_seconds": make_metric([long[1]]),
        "opening.livez_seconds_max": make_metric([long[2]], ANSWER_SECONDS_MAX),
        "opening.livez_seconds_max_empty": make_metric([empty[2]]),
        "opening.resident_mb_more": make_metric([long[3] - empty[3]], 256.0),
        "opening.resident_mb_empty": make_metric([empty[3]]),
    }


def _open(node: NodeProcess, port: int) -> tuple[float, float, float, float]:
    """Seconds until it has started and until it has nothing more to do; the slowest probe once the model is loaded; the
    most memory in MB."""
    began = time.monotonic()
    node.start()
    started = 0.0
    is_opening, worst = False, 0.0
    busy_at, cpu = began, 0.0
    while started == 0.0 or time.monotonic() - busy_at < IDLE_SECONDS:
        if not node.is_alive or time.monotonic() - began > WAIT_SECONDS_MAX:
            raise RuntimeError(f"the node did not start: {node.new_lines()[-3:]}")
        seconds = _probe(port)
        worst = max(worst, seconds if is_opening else 0.0)
        for line in node.new_lines():
            is_opening |= line["event"] == "opening the journal"
            if line["event"] == "started":
                started = time.monotonic() - began
        if node.cpu_seconds() > cpu + 0.1:
            busy_at, cpu = time.monotonic(), node.cpu_seconds()
        time.sleep(PROBE_SECONDS)
    memory = _peak_mb(node.pid)
    node.stop()
    return started, busy_at - began, worst, memory


def _probe(port: int) -> float:
    """Seconds that an answer took; 0 while nobody listens yet."""
    begun = time.perf_counter()
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/livez", timeout=WAIT_SECONDS_MAX
        ) as answer:
            answer.read()
    except (urllib.error.URLError, ConnectionError):
        return 0.0
    return time.perf_counter() - begun


def _peak_mb(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def _fill(node: NodeProcess) -> None:
    """The journal of a node that has received from all origins step by step."""
    settings = load_settings(node.folder / "peers.toml")
    run: RunSettings = settings.run
    digest = load_base(run, settings.node).digest
    path = node.state / JOURNAL_FILE
    path.unlink()
    with BundleJournal.open(path, run.run_id(), digest, refresh_period=run.seedflood.refresh_period) as journal:
        for step in range(BUNDLES // ORIGINS):
            journal.append([_bundle(origin, step) for origin in range(1, ORIGINS + 1)], (), durable=False)
            if step % APPENDED_STEPS == 0:
                journal.commit()


def _bundle(origin: int, step: int) -> Bundle:
    """Signatures were checked before they were journalled, so none is needed here."""
    return make_bundle(origin << 48, step, ((origin * 7919 + step & LOSS_MAX, step % 4096 - 2048),), 0, bytes(64))
