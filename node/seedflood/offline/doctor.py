"""What may be wrong before a run: each check is one line, with what to do about it.

The checks are those that a node makes itself when it starts, with the sentences that it would end with, and a step that
is measured here and thrown away. Nothing is written, and nobody notices it but peers whose ports are tried.
"""

import http.client
import os
import resource
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.filesize import decimal

from seedflood.config import (
    NodeSettings,
    RankPlace,
    Settings,
    check_ranks,
    check_settings,
    load_settings,
    quantisation_fault,
)
from seedflood.errors import BindError, ConfigError, DataError, ExitCode, ModelError, SeedfloodError
from seedflood.host.clocks import Clocks
from seedflood.host.enrolment import Enrolment, steady_seconds
from seedflood.host.places import JOURNAL_FILE, KEY_FILE, SNAPSHOTS_KEPT, is_held
from seedflood.identity import Identity
from seedflood.listening import listen_at
from seedflood.storage.opening import check_run
from seedflood.transport.silence import LOST_OR_HUNG

if TYPE_CHECKING:
    from seedflood.host.results import Learner
    from seedflood.training.models import ModelSize

DIAL_SECONDS = 3.0
MEMORY_SHARE_MAX = 0.9
"""Of the memory that is free; the journal and the links take some, too."""

DISK_SPARE_BYTES = 100_000_000
"""For journal and events, beside the models that are kept."""

BUNDLE_BYTES = 110
"""Of a message beside its payloads: signature, origin, step, frame."""

WEIGHT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "nf4": 0.5625}
"""Of a number on the device, by [node] dtype; nf4 with a scale for 64 numbers."""

ROW_PASSES_MAX = 3
"""More passes over 1,024 sentences had a model get too sure of them (benchmarks/notes/2026-12.md, SST-2)."""

HALF_LOADING_BYTES = 6
"""Of a number in host memory, while a model in half precision is there: its float32 masters, too."""

ENCODING_BYTES = {"float32": 4, "bfloat16": 2, "uint8": 1}
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Check:
    """What was found. text: one sentence; of what is bad, with a remedy. code: as a node would exit with."""

    what: str
    level: Literal["ok", "note", "bad"]
    text: str
    code: ExitCode = ExitCode.OK


class _Step(NamedTuple):
    """One step of this host. sent_bytes: what it sends of it. device: where it was computed, and in which type."""

    seconds: float
    sent_bytes: float
    model_bytes: int
    base_digest: bytes
    rows: str
    row_passes: float
    """How often the run measures each row of this host; 0 if that is not counted."""
    device: str
    export_fault: SeedfloodError | None
    """What the model could not be exported for."""


def examine(file: Path, flags: dict[str, Any]) -> Iterator[Check]:
    """All checks, as soon as they are made. What needs settings that cannot be read is left out."""
    try:
        settings = load_settings(file, flags)
        check_settings(settings)
    except SeedfloodError as error:
        yield _bad("settings", error)
        return
    yield Check("settings", "ok", f"run {settings.run.name}, id {settings.run.shown_id()}: to be equal on all hosts")
    yield _key(settings)
    yield _clock(settings.node)
    if listen := settings.node.listen:
        yield _port(listen, settings.node.state)
    yield from (_peer(one.address, settings.node.proxy_of(one.address)) for one in settings.peers)
    if settings.node.role == "relay":
        yield from _journal(settings, None)
        yield _disk(settings.node.state, DISK_SPARE_BYTES)
        yield Check("waiting", "note", "a relay measures nothing, and nobody waits for it")
        return
    yield from _step(settings)
    yield Check("waiting", "note", _waiting(settings))


def _bad(what: str, error: SeedfloodError) -> Check:
    return Check(what, "bad", str(error), error.exit_code)


def _key(settings: Settings) -> Check:
    path, operator = settings.node.state / KEY_FILE, settings.run.operator
    if not path.exists():
        if operator is None:
            return Check("key", "ok", f"{path} is made at the first start; the run is open to whoever knows it")
        text = f"{path} is not there, and the run is closed: copy the key that its operator made for this host."
        return Check("key", "bad", text, ExitCode.CONFIG)
    try:
        identity = Identity.load_or_create(path)
        enrolment = Enrolment.open(settings, identity)
    except SeedfloodError as error:
        return _bad("key", error)
    if (fault := Clocks(enrolment.access, steady_seconds).fault()) is not None:
        return Check("key", "bad", f"{fault}: set the clock, or have the operator give it more time.", ExitCode.CONFIG)
    return Check("key", "ok", identity.fingerprint + (" is on the roster" if operator else "; the run is open"))


def _clock(node: NodeSettings) -> Check:
    """A clock that is behind what was written here, or by whoever made the files, is wrong."""
    known = [node.roster, node.state, *(node.state.iterdir() if node.state.is_dir() else ())]
    newest = max((path.stat().st_mtime for path in known if path is not None and path.exists()), default=0.0)
    behind = max(newest, Path(__file__).stat().st_mtime) - time.time()
    if behind > 60:
        text = (
            f"it is {behind / 3600:.1f} hours behind files of this host: set it, for certificates hold from a day ago."
        )
        return Check("clock", "bad", text, ExitCode.CONFIG)
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))


def _port(address: str, state: Path) -> Check:
    if is_held(state):
        return Check("port", "ok", f"{address}: the node of this host runs")
    try:
        listen_at(address, "[node] listen").close()
    except BindError as error:
        return _bad("port", error)
    return Check("port", "ok", f"{address} is free")


def _peer(address: str, proxy: str) -> Check:
    way = f" through the proxy {proxy}" if proxy else ""
    try:
        with _connect(address, proxy) as connection:
            return _shake_hands(connection, address, way)
    except ConnectionRefusedError:
        if proxy:
            text = f"nobody listens at {proxy}: correct [node] proxy, or take it out."
            return Check("peer", "bad", text, ExitCode.TRY_AGAIN)
        return Check("peer", "note", f"{address} is there, and nobody listens yet: a node dials until one does")
    except OSError as error:
        text = (
            f"{address} cannot be reached{way} ({error.strerror or error}): correct [[peers]], or open the port there."
        )
        return Check("peer", "bad", text, ExitCode.TRY_AGAIN)


def _connect(address: str, proxy: str) -> socket.socket:
    """An open connection. Raises OSError."""
    host, _, port = address.rpartition(":")
    if not proxy:
        return socket.create_connection((host.strip("[]"), int(port)), DIAL_SECONDS)
    proxy_host, _, proxy_port = proxy.rpartition(":")
    connection = http.client.HTTPConnection(proxy_host.strip("[]"), int(proxy_port), timeout=DIAL_SECONDS)
    connection.set_tunnel(host.strip("[]"), int(port))
    try:
        connection.connect()
    except http.client.HTTPException as error:
        connection.close()
        raise OSError(f"{proxy} does not answer as a proxy") from error
    except OSError:
        connection.close()
        raise
    return connection.sock


def _shake_hands(connection: socket.socket, address: str, way: str) -> Check:
    """Does a handshake of TLS end? What it shows is not looked at, for a link does that."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(connection).close()
    except TimeoutError:
        text = f"{address}{way}: the connection opens, but the TLS handshake does not end; {LOST_OR_HUNG}."
        return Check("peer", "bad", text, ExitCode.TRY_AGAIN)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        text = f"{address}{way} takes the connection and closes it, as a forwarder does if nobody listens behind it yet"
        return Check("peer", "note", text)
    except ssl.SSLError:
        text = f"{address}{way} answers without TLS, so it is no seedflood: correct [[peers]]."
        return Check("peer", "bad", text, ExitCode.TRY_AGAIN)
    return Check("peer", "ok", f"{address} answers{way}")


def _step(settings: Settings) -> Iterator[Check]:
    """Rows, model, device, memory, disk, time and traffic: of a step that is measured."""
    free, node = _free_memory(), settings.node
    if settings.run.objective.task == "own":
        yield Check("step", "note", "a script computes it: rows, memory and time are not known here")
        yield _disk(node.state, DISK_SPARE_BYTES)
        return
    try:
        if (large := _too_large(settings, free)) is not None:
            yield large
            if large.level == "bad":
                return
        step = _measure(settings)
    except SeedfloodError as error:
        yield _bad(
            "rows" if isinstance(error, DataError) else "model" if isinstance(error, ModelError) else "step", error
        )
        return
    yield _rows(settings, step)
    yield from _journal(settings, step.base_digest)
    yield Check("device", "ok", step.device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sentence = f"a step takes {decimal(used)} of {decimal(free)}"
    if used > MEMORY_SHARE_MAX * free:
        remedy = "set a smaller [node] micro_batch, or choose another estimate."
        yield Check("memory", "bad", f"{sentence}: {remedy}", ExitCode.CONFIG)
    else:
        yield Check("memory", "ok", sentence)
    copies = SNAPSHOTS_KEPT if settings.run.mode == "gasloc" else 0
    yield _disk(node.state, step.model_bytes * copies + DISK_SPARE_BYTES)
    if step.export_fault is not None:
        yield _bad("export", step.export_fault)
    elif node.export is not None:
        yield Check("export", "ok", f"{node.export} can be written, and takes {decimal(step.model_bytes)}")
    total = step.sent_bytes * settings.run.clients / settings.run.seedflood.turn_rounds(settings.run.clients)
    whole, day = decimal(int(total * settings.run.steps)), decimal(int(total / step.seconds * DAY_SECONDS))
    yield Check(
        "time", "ok", f"{step.seconds:.3g} s a step, so {_span(step.seconds * settings.run.steps)} of computing"
    )
    sentence = f"{decimal(round(step.sent_bytes))} a step; a link carries those of all hosts, {whole} in all"
    yield Check("traffic", "ok", f"{sentence}, and at most {day} a day")


def _too_large(settings: Settings, free: int) -> Check | None:
    """Of a model whose weights alone do not fit. To load it could end the process without a word. Any device needs
    them in host memory, in float32. Raises ModelError if there is no such device."""
    from seedflood.training.models import find_size  # a relay has no torch

    size = find_size(str(settings.node.model_path or settings.run.model))
    if size is None:
        return None
    if 4 * size.parameters > free:
        text = f"the weights take {decimal(4 * size.parameters)}, and {decimal(free)} of host memory are free"
        return Check("memory", "bad", f"{text}: take a host with more, or a smaller [run] model.", ExitCode.CONFIG)
    # A node that runs has taken its part of the device.
    if settings.run.mode == "seedflood" and not is_held(settings.node.state):
        return _too_large_for_device(settings, size, free)
    return None


def _too_large_for_device(settings: Settings, size: "ModelSize", host_free: int) -> Check | None:
    """host_free: bytes of host memory."""
    from seedflood.training import devices
    from seedflood.training.loading import choose_device
    from seedflood.training.seedflood import offloaded

    node = settings.node
    device = devices.find_device(choose_device(node))
    usual = str(devices.usual_dtype(device)).removeprefix("torch.")
    dtype: str = usual if node.dtype == "auto" else node.dtype
    taken, room = _on_device(settings, size, dtype, usual), offloaded.room_for_weights(device)
    is_half = (usual if node.quantisation is not None else dtype) != "float32"
    waits_on_host = node.quantisation is not None or taken > room or device.type == "cpu"
    needed = (HALF_LOADING_BYTES if is_half and waits_on_host else 4) * size.parameters
    if needed > host_free:
        text = f"loading takes {decimal(needed)} of host memory, and {decimal(host_free)} are free"
        return Check("memory", "bad", f"{text}: take a host with more, or a smaller [run] model.", ExitCode.CONFIG)
    if taken <= room:
        return None
    layer = WEIGHT_BYTES[usual if node.quantisation is not None else dtype] * size.experts
    if layer > room:
        text = f"the experts of one layer take {decimal(int(layer))}, and {device} has room for {decimal(int(room))}"
        return Check("memory", "bad", f"{text}: take a device with more memory, or a smaller model.", ExitCode.CONFIG)
    text = f"the weights take {decimal(int(taken))} in {dtype}, and {device} has room for {decimal(int(room))}"
    remedies = [*_fitting_types(settings, size, usual, room), *_sharing(settings)]
    if settings.run.objective.kl:
        remedies = ["set kl = 0 in [run.objective]", *remedies, "take a smaller [run] model"]
        return Check("memory", "bad", f"{text}: {', or '.join(remedies)}.", ExitCode.CONFIG)
    text += ": the rest lies in host memory, and each pass copies it, which takes time"
    return Check("memory", "note", f"{text}. To avoid that, {', or '.join(remedies)}." if remedies else f"{text}.")


def _on_device(settings: Settings, size: "ModelSize", dtype: str, usual: str) -> float:
    """How many bytes weights of this type take. Those of few bits: with what epochs change beside them, and with the
    experts of a layer as they are computed with. usual: type of the device, in which these are computed with."""
    from seedflood.training.seedflood.offloaded import bytes_beside, copies_of

    weights: float = WEIGHT_BYTES[dtype] * size.parameters * copies_of(settings.run)
    kind = settings.node.model_copy(update={"dtype": dtype}).quantisation
    if kind is None:
        return weights
    itemsize = int(WEIGHT_BYTES[usual])
    return weights + bytes_beside(settings.run, kind, size.sides, itemsize) + itemsize * size.experts


def _fitting_types(settings: Settings, size: "ModelSize", usual: str, room: float) -> Iterator[str]:
    """What to set so that the weights fit, if anything. An auditor needs float32."""
    node = settings.node
    for dtype in () if node.audit else ("bfloat16", "int8", "nf4"):
        host = node.model_copy(update={"dtype": dtype})
        if _on_device(settings, size, dtype, usual) <= room and quantisation_fault(settings.run, host) is None:
            yield f'set [node] dtype = "{dtype}"'


def _sharing(settings: Settings) -> Iterator[str]:
    """To share the model among several GPUs, if these settings allow it."""
    host = settings.node.model_copy(update={"device": "auto"})
    try:
        check_ranks(settings.model_copy(update={"node": host}), RankPlace(0, 2))
    except ConfigError:
        return
    yield "share it among several GPUs by torchrun (docs/how-to/hosts.md)"


def _measure(settings: Settings) -> _Step:
    """The second of two rounds: the first one warms up. Raises SeedfloodError."""
    from seedflood.training.devices import describe  # a relay has no torch
    from seedflood.training.gasloc.loading import load_trainer
    from seedflood.training.seedflood.trainer import Trainer

    run, node = settings.run, settings.node
    if run.mode == "gasloc":
        loaded, steps = load_trainer(run, node, 0), run.gasloc.local_steps
        began = time.perf_counter()
        loaded.worker.take_steps(1)
        seconds, count = time.perf_counter() - began, loaded.base.parameters_count
        sent = count * ENCODING_BYTES[run.gasloc.encoding] / steps
        device = describe(loaded.base.device, "bfloat16" if loaded.worker.settings.is_bfloat16 else "float32")
        fault = _export_fault(loaded, node.export)
        text = f"{loaded.task.facts['rows']} rows"
        return _Step(seconds, sent, 4 * count, loaded.base.digest, text, 0.0, device, fault)
    trainer, steps = Trainer(run, node), run.seedflood.local_steps
    for _ in range(2):
        measured = trainer.measure(0, 0, steps)
    measured_bytes = sum(len(one) if isinstance(one, bytes) else 8 for one in measured.probes)
    rows = trainer.task.describe()
    counts = f"{rows['rows']:,} to train, {rows['rows_here']:,} of them here, {rows['validation_rows']:,} to evaluate"
    text = "; ".join([f"task {rows['task']}: {counts}", *rows["remarks"]])
    sent = (measured_bytes + BUNDLE_BYTES) / steps
    device, fault = describe(trainer.replica.base.device, trainer.dtype), _export_fault(trainer, node.export)
    turns = run.seedflood.turn_rounds(run.clients)
    passes = run.steps / turns * run.batch_size / rows["rows_here"]
    model_bytes = 4 * trainer.parameters[0]
    return _Step(measured.seconds / steps, sent, model_bytes, trainer.base_digest, text, passes, device, fault)


def _rows(settings: Settings, step: _Step) -> Check:
    passes = step.row_passes
    if passes < 1 or settings.run.objective.task == "reward":  # a model writes other texts each time
        return Check("rows", "ok", step.rows)
    sentence = f"{step.rows}; the run measures each of them {passes:.3g} times"
    if passes <= ROW_PASSES_MAX:
        return Check("rows", "ok", sentence)
    advice = "the loss on other rows may rise after some passes: watch the evaluations, or take fewer steps"
    return Check("rows", "note", f"{sentence}: {advice}.")


def _export_fault(trainer: "Learner", export: Path | None) -> SeedfloodError | None:
    """What would refuse the model at the end of the run."""
    try:
        if export is not None:
            trainer.try_export(export)
    except SeedfloodError as error:
        return error
    return None


def _journal(settings: Settings, base_digest: bytes | None) -> Iterator[Check]:
    try:
        check_run(settings.node.state / JOURNAL_FILE, settings.run.run_id(), base_digest)
    except ConfigError as error:
        yield _bad("journal", error)


def _disk(state: Path, wanted: int) -> Check:
    there = next(one for one in (state, *state.parents) if one.exists())
    free = shutil.disk_usage(there).free
    sentence = f"{decimal(free)} free at {there}, up to {decimal(wanted)} are needed"
    if free < wanted:
        return Check("disk", "bad", f"{sentence}: make room, or choose another [node] state.", ExitCode.DISK)
    if not os.access(there, os.W_OK):
        text = f"{there} cannot be written: choose another [node] state."
        return Check("disk", "bad", text, ExitCode.DISK)
    return Check("disk", "ok", sentence)


def _waiting(settings: Settings) -> str:
    run, node = settings.run, settings.node
    if run.mode != "seedflood":
        return f"partners wait for each other; the first round waits {node.patience_seconds:g} s at most"
    if run.seedflood.window == "strict":
        return f"strict windows: each step waits for all {run.clients} hosts, however long they are away"
    return f"bounded windows: {run.clients} hosts are waited for as long as they keep pace"


def _free_memory() -> int:
    """Bytes that may still be used: of the machine, or of the container."""
    if sys.platform == "darwin":  # which has no number of what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def _span(seconds: float) -> str:
    unit, size = next(
        one
        for one in (("days", DAY_SECONDS), ("hours", 3600), ("minutes", 60), ("s", 1))
        if seconds >= one[1] or one[1] == 1
    )
    return f"{seconds / size:.3g} {unit}"
