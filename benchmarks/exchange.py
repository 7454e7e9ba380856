"""How fast two hosts exchange 100 MB of parameters, against a bare TCP copy and hivemind's averaging.

Two processes, each a node that trains by GASLoC as a daemon does (`gossip`): local steps on a model of 25 M parameters,
then an exchange in float32 over a real link on loopback, in both directions at once, into files. *Exchange* is from the
later one's offer to the last byte at the later end: chunks, checksums, the core, gRPC and the file are in it.
*Round* is from the end of the later one's local steps to the end of the later one's outer step: encoding and a SHA-256
before, and after it checking, keeping durably on both sides, the word that both have it, and the outer step.

The *raw copy* sends as many bytes in both directions at once between two processes over one TCP connection, from memory
to memory, without a checksum or a file. Hivemind averages a tensor of as many bytes between two peers
(`baselines/averaging`); of that the all-reduce alone counts, without the seconds in which they find each other.

*Busy* is the same exchange while both hosts take local steps (`delay_steps`), on the cores that there are. *Slow* is a
link of 100 Mbit/s in each direction with 2 ms there and back, *wide* with 40 ms, and *far* with 400 ms (`shaped`; they
are left out for who is not root); all bytes of a round pass it. *Waits*: other frames to the same neighbour, from being
queued to being read at the other end (`gossip`), the longest of each exchange. *Memory*: the peak of resident memory
within a round, mapped files included, less what the process had at the end of its local steps, as a part of the
parameters' bytes. Beside it a host keeps the parameters as they were offered, since local steps may go on meanwhile:
one copy more.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.environments import HIVEMIND
from benchmarks.gossip import GossipHost, Notes, Round
from benchmarks.measure import Metric, make_metric
from benchmarks.shaped import ADDRESSES, Shape, ShapedLink, enter
from benchmarks.workers import Worker, next_question
from seedflood import embedded
from seedflood.config import RunSettings, load_settings
from seedflood.embedded import grammar
from seedflood.host import garbage
from seedflood.identity import Identity
from seedflood.protocol.gasloc.rules import Bounds, GaslocRules, Habits
from seedflood.protocol.swarm.rules import Patience
from seedflood.training.gasloc.encodings import ENCODINGS, EncodingName, payload_size
from seedflood.training.gasloc.loading import load_trainer

SHAPE: dict[str, Any] = {"hidden_size": 512, "word_embed_proj_dim": 512, "ffn_dim": 2048, "num_hidden_layers": 8}
HEADS = 8
ROUNDS, SLOW_ROUNDS = 8, 3
WARM_UP_ROUNDS = 1
"""Not on shaped links: there the first exchange counts, too. On the far one the first round may have no partners: local
steps take less time than the way, so a host may not know yet that its neighbour is linked with it."""

SLOW_BYTES_PER_SECOND = 100e6 / 8
TRIPS = {"slow": 0.002, "wide": 0.04, "far": 0.4}
"""Seconds there and back."""
NEVER = 1_000_000
COPIES = 7
COPY_BYTES = 1 << 20
WAIT_SECONDS_MAX = 600.0
BASELINE = Path(__file__).parent / "baselines" / "averaging.py"
BASELINE_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Task:
    """Folders."""

    model: Path
    rows: Path


@dataclass(frozen=True, slots=True)
class Course:
    """What one host has noted. size: bytes of the parameters as they travelled; parameter_bytes: as they are."""

    notes: Notes
    size: int
    parameter_bytes: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Both hosts, over the rounds that count: those before the end of the run, which has an encoding of its own."""

    courses: tuple[Course, Course]
    warm_up_rounds: int
    training_rounds: int

    @property
    def size(self) -> int:
        return self.courses[0].size

    def exchange_seconds(self) -> list[float]:
        return self._seconds("offered_at", "arrived_at")

    def round_seconds(self) -> list[float]:
        return self._seconds("stepped_at", "mixed_at")

    def waits(self) -> list[float]:
        """The longest of each exchange, in milliseconds."""
        found = []
        for both in self.rounds():
            begin, end = max(one.offered_at for one in both), max(one.arrived_at for one in both)
            waits = [wait for course in self.courses for at, wait in course.notes.waits if begin <= at <= end]
            found.append(1000 * max(waits, default=0.0))
        return found

    def extra(self) -> list[float]:
        """Of memory, as a part of the parameters; of all rounds, for the first one may allocate what stays."""
        return [
            one.extra_bytes / course.parameter_bytes
            for course in self.courses
            for one in course.notes.rounds
            if one.arrived_at
        ]

    def rounds(self) -> list[tuple[Round, Round]]:
        """All that count. The last one of a run ends with it, perhaps before its outer step is reported."""
        first, second = ({one.number: one for one in course.notes.rounds if one.mixed_at} for course in self.courses)
        both = [
            (first[number], second[number])
            for number in sorted(first.keys() & second.keys())
            if number < self.training_rounds
        ]
        exchanged = [pair for pair in both if all(one.arrived_at for one in pair)]
        if len(exchanged) <= self.warm_up_rounds:
            raise RuntimeError("too few rounds were exchanged; is the machine busy?")
        return exchanged[self.warm_up_rounds :]

    def _seconds(self, begin: str, end: str) -> list[float]:
        return [
            max(getattr(one, end) for one in both) - max(getattr(one, begin) for one in both) for both in self.rounds()
        ]


def run() -> dict[str, Metric]:
    with TemporaryDirectory(prefix="seedflood-exchange-") as home:
        task = Task(_make_model(Path(home, "model")), _make_rows(Path(home, "rows")))
        near = exchange(Path(home, "near"), task, Scene())
        raw = measure_raw(near.size)
        print(f"raw copy: {median(raw):.3f} s", file=sys.stderr)
        theirs = measure_hivemind(near.size)
        busy = exchange(Path(home, "busy"), task, Scene(delay_steps=1))
        shaped = _exchange_shaped(Path(home), task) if os.geteuid() == 0 else {}
    return {
        "exchange.to_raw_copy": _ratio(raw, near.exchange_seconds(), 0.5),
        "exchange.round_to_raw_copy": _ratio(raw, near.round_seconds()),
        **_compared("exchange.to_hivemind", theirs, near.exchange_seconds(), 3.0),
        **_compared("exchange.round_to_hivemind", theirs, near.round_seconds()),
        "exchange.megabytes_per_second": _throughput(near.size, near.exchange_seconds()),
        "exchange.busy_megabytes_per_second": _throughput(near.size, busy.exchange_seconds()),
        "exchange.raw_copy_megabytes_per_second": _throughput(near.size, raw),
        "exchange.round_seconds": make_metric(near.round_seconds()),
        "exchange.wait_milliseconds": make_metric(near.waits(), 20.0),
        "exchange.busy_wait_milliseconds": make_metric(busy.waits(), 20.0),
        "exchange.memory_to_copy": make_metric([max(near.extra())]),
        "exchange.memory_with_offered_to_copy": make_metric([1 + max(near.extra())], 1.2),
        **shaped,
    }


def _exchange_shaped(home: Path, task: Task) -> dict[str, Metric]:
    names: tuple[EncodingName, ...] = ("uint8", "bfloat16")
    narrow = {name: exchange(home / name, task, shaped_scene("slow", name)) for name in names}
    pairs = {place: exchange(home / place, task, shaped_scene(place)) for place in TRIPS}
    seconds = {name: pair.exchange_seconds() for name, pair in {**narrow, "float32": pairs["slow"]}.items()}
    wanted = {"slow": 0.9, "wide": 0.9, "far": 0.7}
    found = {
        "exchange.uint8_to_bfloat16": make_metric([a / median(seconds["bfloat16"]) for a in seconds["uint8"]], 0.55),
        "exchange.bfloat16_to_float32": make_metric(
            [a / median(seconds["float32"]) for a in seconds["bfloat16"]], 0.55
        ),
    }
    for place, pair in pairs.items():
        used = [pair.size / one / SLOW_BYTES_PER_SECOND for one in pair.exchange_seconds()]
        found[f"exchange.{place}_utilisation"] = make_metric(used, wanted[place], more_is_better=True)
        found[f"exchange.{place}_wait_milliseconds"] = make_metric(pair.waits(), 500.0)
    return found


def _throughput(size: int, seconds: Sequence[float]) -> Metric:
    """10^6 bytes per second and direction."""
    return make_metric([size / one / 1e6 for one in seconds])


def _ratio(theirs: Sequence[float], ours: Sequence[float], target: float | None = None) -> Metric:
    """Of throughputs: their median seconds to each of ours."""
    return make_metric([median(theirs) / one for one in ours], target, more_is_better=True)


def _compared(
    name: str, theirs: Sequence[float], ours: Sequence[float], target: float | None = None
) -> dict[str, Metric]:
    return {name: _ratio(theirs, ours, target)} if theirs else {}


# Ours


@dataclass(frozen=True, slots=True)
class Scene:
    """What is exchanged, and how. shape: None for loopback as it is. delay_steps: local steps meanwhile."""

    encoding: EncodingName = "float32"
    rounds: int = ROUNDS
    shape: Shape | None = None
    delay_steps: int = 0
    warm_up_rounds: int = WARM_UP_ROUNDS


def shaped_scene(place: str, encoding: EncodingName = "float32") -> Scene:
    return Scene(encoding, SLOW_ROUNDS, Shape(TRIPS[place], SLOW_BYTES_PER_SECOND), warm_up_rounds=0)


def exchange(home: Path, task: Task, scene: Scene) -> Pair:
    """Two hosts, with one link between them."""
    with ExitStack() as stack:
        for number in (1, 2):
            (home / f"host-{number}").mkdir(parents=True)
        spaces: tuple[str | None, ...] = (None, None)
        if scene.shape is not None:
            spaces = stack.enter_context(ShapedLink(scene.shape)).names
        one, other = (
            stack.enter_context(Worker(serve_host, home / f"host-{number}", task, scene, space))
            for number, space in zip((1, 2), spaces, strict=True)
        )
        port = one.receive()
        other.receive()
        other.tell("dial", f"{ADDRESSES[0] if scene.shape else '127.0.0.1'}:{port}")
        courses = one.receive(WAIT_SECONDS_MAX), other.receive(WAIT_SECONDS_MAX)
    pair = Pair(courses, scene.warm_up_rounds, scene.rounds)
    _tell(home.name, pair)
    return pair


def serve_host(pipe: Connection, folder: Path, task: Task, scene: Scene, space: str | None) -> None:
    """space: the network namespace that it is in."""
    if space is not None:
        enter(space)
    logging.disable(logging.WARNING)
    uvloop.run(_serve_host(pipe, folder, task, scene))


async def _serve_host(pipe: Connection, folder: Path, task: Task, scene: Scene) -> None:
    host, size, parameter_bytes = _make_host(folder, task, scene)
    try:
        pipe.send(await host.start())
        garbage.settle()
        if folder.name.endswith("2"):
            _, address = await asyncio.to_thread(next_question, pipe)
            host.links.dial([address])
        await host.done.wait()
        if host.error is not None:
            raise host.error
        pipe.send(Course(host.notes, size, parameter_bytes))
        await asyncio.to_thread(next_question, pipe)
    finally:
        await host.close()


def _make_host(folder: Path, task: Task, scene: Scene) -> tuple[GossipHost, int, int]:
    run = {
        "mode": "gasloc",
        "model": str(task.model),
        "task": "lm",
        "template": "{sentence}",
        "max_length": 16,
        "batch_size": 1,
        "steps": scene.rounds,
        "clients": 2,
        "local_steps": 1,
        "delay_steps": scene.delay_steps,
        "initial": "random",
        "encoding": scene.encoding,
    }
    node = {"data": str(task.rows), "device": "cpu", "threads": 1}
    settings = load_settings(None, {"run": RunSettings.place(run), "node": node})
    identity = Identity.generate()
    trainer = load_trainer(settings.run, settings.node, identity.origin)
    numbers = len(trainer.worker.flat.values_F)
    size = payload_size(ENCODINGS[scene.encoding], numbers)
    rules = GaslocRules(
        settings.run.run_id(),
        trainer.base.digest,
        2,
        scene.rounds,
        run_seed=settings.run.seed,
        local_steps=1,
        encoding=scene.encoding,
        delay_steps=scene.delay_steps,
        content_bytes_max=4 * numbers,
    )
    listen = f"{ADDRESSES[int(folder.name[-1]) - 1] if scene.shape else '127.0.0.1'}:0"
    bounds = Bounds(floor_seconds=60.0, slow_share=float("inf"))
    patience = Patience(start_seconds=WAIT_SECONDS_MAX, linger_seconds=5.0)
    habits = Habits(checkpoint_rounds=NEVER, bounds=bounds, patience=patience)
    return GossipHost(folder, trainer, rules, habits, identity, listen), size, 4 * numbers


def _make_model(folder: Path) -> Path:
    """25 M parameters, and a tokenizer of the embedded language."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = AutoTokenizer.from_pretrained(embedded.MODEL_FOLDER)
    config = OPTConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        num_attention_heads=HEADS,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dropout=0.0,
        **SHAPE,
    )
    OPTForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _make_rows(folder: Path) -> Path:
    folder.mkdir()
    for split, some in zip(("train", "validation"), grammar.rows(7, (64, 8)), strict=True):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return folder


def _tell(name: str, pair: Pair) -> None:
    exchanges, rounds = median(pair.exchange_seconds()), median(pair.round_seconds())
    print(
        f"{name}, {len(pair.rounds())} rounds: {pair.size / 1e6:.1f} MB in {exchanges:.3f} s, a round in {rounds:.3f} "
        f"s; other frames waited {max(pair.waits()):.1f} ms at most; {max(pair.extra()):.2f} copies of memory",
        file=sys.stderr,
        flush=True,
    )


# Others


def measure_raw(size: int) -> list[float]:
    """Seconds of each copy: from when both are about to begin until both have everything."""
    with Worker(copy_raw, size, 0) as one, Worker(copy_raw, size, one.receive()) as other:
        times = list(zip(one.receive(), other.receive(), strict=True))
    return [max(end for _, end in both) - max(begin for begin, _ in both) for both in times][WARM_UP_ROUNDS:]


def copy_raw(pipe: Connection, size: int, port: int) -> None:
    """One end. port: 0 listens, and prints where."""
    if port:
        link = socket.create_connection(("127.0.0.1", port))
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            pipe.send(listening.getsockname()[1])
            link, _ = listening.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ours, theirs = memoryview(bytes(size)), memoryview(bytearray(size))
    times = []
    with link:
        for _ in range(WARM_UP_ROUNDS + COPIES):
            link.sendall(b"!")  # both are there
            link.recv(1)
            began = time.monotonic()
            sending = threading.Thread(target=_send_all, args=(link, ours))
            sending.start()
            held = 0
            while held < size:
                held += link.recv_into(theirs[held : held + COPY_BYTES])
            sending.join()
            times.append((began, time.monotonic()))
    pipe.send(times)


def _send_all(link: socket.socket, data: memoryview) -> None:
    for offset in range(0, len(data), COPY_BYTES):
        link.sendall(data[offset : offset + COPY_BYTES])


def measure_hivemind(size: int) -> list[float]:
    """Seconds of each all-reduce; nothing if hivemind cannot be installed or fails."""
    try:
        command = [str(HIVEMIND.make()), str(BASELINE), str(size)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=BASELINE_SECONDS_MAX)
        found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        print(f"not compared with hivemind: {' '.join(reason)}", file=sys.stderr)
        return []
    print(
        f"hivemind: all-reduce {median(found['seconds']):.3f} s, with finding each other "
        f"{median(found['all_seconds']):.3f} s",
        file=sys.stderr,
        flush=True,
    )
    return list(found["seconds"])
