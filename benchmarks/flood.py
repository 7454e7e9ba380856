"""Updates per second through one node: live, in a pull, with signatures; against bare verification and other libraries.

*Live*: a relay, in a process of its own on one core, receives frames of a busy stream (4,096 bundles) from one
neighbour, decodes and deduplicates them, writes them to its journal and sends them on to two others. Source and both
sinks are one process on another core; they only write prepared frames, and count what arrives. The clock runs from the
first frame written to the last bundle counted by the slower sink, so everything is in it but the model: gRPC, sqlite,
timers.

*Pull*: a newcomer with an empty journal pulls everything from a donor, each a process on a core of its own. The clock
runs from the request to the end of the answer: the donor reads its journal and encodes, the newcomer decodes,
deduplicates and writes. *Sums* are another way to get as many updates, and are measured apart.

Every update is one bundle with a signature of its own (`local_steps = 1`, the worst case) unless a name says otherwise.
Signatures are taken out by a node whose `verify` believes everything; the bytes stay the same.

Of other libraries, gossipsub of libp2p is measured like ours, by the processor time of its relay; hivemind's DHT, which
is spread over processes of two languages, by the wall clock of the whole. Both sign and verify every record.
"""

import asyncio
import cProfile
import io
import json
import pstats
import random
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import uvloop

from benchmarks.environments import HIVEMIND, LIBP2P, Environment
from benchmarks.measure import Metric, make_metric
from benchmarks.origins import Origins, introduce, vote
from benchmarks.relay import BASE_DIGEST, RUN_ID, Relay, cpu_seconds, make_rules, trust
from benchmarks.workers import Worker, next_question, take_core
from seedflood.host import garbage
from seedflood.identity import Identity, verify
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.packing import pack
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.epochs import digest_of
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Hello, Member
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.transport.codec import FRAME_BUNDLES_MAX, PullEnd, decode, encode
from seedflood.transport.credentials import Credentials, plain_text
from seedflood.transport.server import DialledStream
from seedflood.wire import flood_pb2 as pb

ORIGINS = 64
SINKS = 2
LIVE_UPDATES = 48 * FRAME_BUNDLES_MAX
SIGNED_UPDATES = 4 * FRAME_BUNDLES_MAX
PULLED_UPDATES = 64 * 4000
SUMMED_UPDATES = 20 * ORIGINS * 1000
REFRESH_PERIOD = 1000
COEFFICIENTS = 74 * 32 * 32 + 122 * 32
"""Entries of an epoch: OPT-125M has 74 weight matrices and 122 vectors."""
BUNDLED_STEPS = 5
REPETITIONS = 3
STEPS = 1_000_000
WAIT_SECONDS_MAX = 120.0
PROFILED_LINES = 30
BASELINES = Path(__file__).parent / "baselines"
BASELINE_SECONDS_MAX = 300.0
GOSSIPSUB_UPDATES = 2000
DHT_UPDATES = 2048


def run() -> dict[str, Metric]:
    live, live_cpu = measure_live()
    secured, secured_cpu = measure_live(is_secured=True)
    signed, signed_cpu, bare = measure_signed()
    pulled = measure_pull()
    bundled = measure_pull(BUNDLED_STEPS)
    summed = measure_pull(form="sums")
    others = compare(LIBP2P, "gossipsub.py", GOSSIPSUB_UPDATES), compare(HIVEMIND, "dht.py", DHT_UPDATES)
    gossipsub = [one["updates"] / one["relay_cpu_seconds"] for one in others[0]]
    dht = [one["updates"] / one["seconds"] for one in others[1]]
    return {
        "flood.live_per_second": make_metric(live, 100_000, more_is_better=True),
        "flood.live_per_cpu_second": make_metric(live_cpu),
        "flood.live_tls_per_second": make_metric(secured),
        **_ratio("flood.tls_to_plain", secured_cpu, live_cpu, 0.85),
        "flood.signed_per_second": make_metric(signed),
        "flood.verified_per_second": make_metric(bare),
        "flood.signed_to_verify": make_metric(
            [a / b for a, b in zip(signed, bare, strict=True)], 0.6, more_is_better=True
        ),
        "flood.pull_per_second": make_metric(pulled, 1_000_000, more_is_better=True),
        "flood.pull_bundled_per_second": make_metric(bundled),
        "flood.pull_sums_per_second": make_metric(summed),
        **_ratio("flood.to_libp2p", signed_cpu, gossipsub, 20),
        **_ratio("flood.to_hivemind", signed, dht),
    }


def compare(environment: Environment, script: str, updates: int) -> list[dict[str, float]]:
    """What another library took for as many updates, each time; nothing if it cannot be installed or lost some."""
    try:
        python = environment.make()
        ran = [
            subprocess.run(
                [str(python), str(BASELINES / script), str(updates)],
                capture_output=True,
                text=True,
                check=True,
                timeout=BASELINE_SECONDS_MAX,
            )
            for _ in range(REPETITIONS)
        ]
        results = [json.loads(one.stdout) for one in ran]
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        print(f"not compared with {environment.name}: {' '.join(reason)}", file=sys.stderr)
        return []
    lost = [one for one in results if one["updates"] < one["wanted"]]
    if lost:
        print(f"not compared with {environment.name}: {lost[0]}", file=sys.stderr)
        return []
    return results


def _ratio(name: str, ours: list[float], theirs: list[float], target: float | None = None) -> dict[str, Metric]:
    """Of two rates; nothing if there is nothing to compare with."""
    if not theirs:
        return {}
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {name: make_metric(ratios, target, more_is_better=True)}


def frames_of(bundles: Sequence[Bundle]) -> list[bytes]:
    return encode(Updates(tuple(bundles)))


# Live


def measure_live(*, is_secured: bool = False) -> tuple[list[float], list[float]]:
    """Updates per second of wall clock, and per second of the relay's core. is_secured: over mutual TLS."""
    with TemporaryDirectory(prefix="seedflood-flood-") as home, Worker(serve_relay, home, False, is_secured) as relay:
        origins = Origins(ORIGINS)
        streams = [frames_of(origins.say(LIVE_UPDATES)) for _ in range(REPETITIONS + 1)]
        seconds = uvloop.run(feed(relay, origins.members, streams, LIVE_UPDATES, is_secured=is_secured))
        wall, cpu = zip(*seconds[1:], strict=True)
    return [LIVE_UPDATES / s for s in wall], [LIVE_UPDATES / s for s in cpu]


def measure_signed() -> tuple[list[float], list[float], list[float]]:
    """The same with signatures, and, third, bare verification of as many in turn, by the same process."""
    with TemporaryDirectory(prefix="seedflood-flood-") as home, Worker(serve_relay, home, True) as relay:
        origins = Origins(ORIGINS)
        streams = [frames_of(origins.say(SIGNED_UPDATES, is_signed=True)) for _ in range(REPETITIONS + 1)]
        seconds = uvloop.run(feed(relay, origins.members, streams, SIGNED_UPDATES, in_turn="verify"))
    wall, cpu, bare = ([SIGNED_UPDATES / one for one in column] for column in zip(*seconds[1:], strict=True))
    return wall, cpu, bare


def serve_relay(pipe: Connection, home: str, is_signed: bool, is_secured: bool = False) -> None:
    """The process of the relay: prints its port, then answers what it is asked until the pipe closes."""
    take_core(0)
    uvloop.run(_serve_relay(pipe, Path(home), is_signed, is_secured))


async def _serve_relay(pipe: Connection, home: Path, is_signed: bool, is_secured: bool) -> None:
    rules = make_rules(ORIGINS, STEPS)
    believes, identity = verify if is_signed else trust, Identity.generate()
    credentials = Credentials(identity) if is_secured else None
    relay = Relay(home, identity, rules, name="relay", verify=believes, credentials=credentials)
    profile = cProfile.Profile()
    try:
        pipe.send(await relay.start())
        garbage.settle()
        while (question := await asyncio.to_thread(next_question, pipe)) is not None:
            match question:
                case ("ready",):
                    await relay.until(lambda: relay.is_measuring)
                    pipe.send(True)
                case ("cpu",):
                    pipe.send(cpu_seconds())
                case ("verify", members, frames):
                    pipe.send(verify_bare(members, frames))
                case ("profile",):
                    profile.enable()
                    pipe.send(True)
                case ("costs",):
                    profile.disable()
                    pipe.send(_describe(profile))
    finally:
        await relay.close()


def print_profiles() -> None:
    """Of a relay, without and with signatures."""
    for is_signed in (False, True):
        _print_profile(is_signed=is_signed)


def _print_profile(*, is_signed: bool) -> None:
    """What a relay spends its time on, function by function: the profiler slows Python down two- to threefold, so only
    the order and the shares mean something."""
    with TemporaryDirectory(prefix="seedflood-flood-") as home, Worker(serve_relay, home, is_signed) as relay:
        updates = SIGNED_UPDATES if is_signed else LIVE_UPDATES
        origins = Origins(ORIGINS)
        streams = [frames_of(origins.say(updates, is_signed=is_signed)) for _ in range(2)]
        uvloop.run(feed(relay, origins.members, streams, updates, profiled=True))
        print(relay.ask("costs"))


def _describe(profile: cProfile.Profile) -> str:
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(PROFILED_LINES)
    return text.getvalue()


def verify_bare(members: Sequence[Member], frames: Sequence[bytes]) -> float:
    """Seconds for the signatures in these frames and nothing else."""
    keys = {member.origin: member.public_key for member in members}
    batches = [decode(frame) for frame in frames]
    jobs = [
        (keys[bundle.origin], bundle.signed_bytes(RUN_ID, keys[bundle.origin]), bundle.signature)
        for batch in batches
        if isinstance(batch, Updates)
        for bundle in batch.bundles
    ]
    began = time.perf_counter()
    are_right = all(verify(*job) for job in jobs)
    seconds = time.perf_counter() - began
    if not are_right:
        raise RuntimeError("a signature of the benchmark is wrong")
    return seconds


async def feed(
    relay: Worker,
    members: Sequence[Member],
    streams: Sequence[Sequence[bytes]],
    updates: int,
    *,
    in_turn: str = "",
    profiled: bool = False,
    is_secured: bool = False,
) -> list[tuple[float, ...]]:
    """For each stream of frames: seconds until all sinks have all of its updates, and of the relay's processor."""
    port = relay.receive()
    source = Peer("source", members, is_secured=is_secured)
    sinks = [Peer(f"sink-{k}", is_secured=is_secured) for k in range(SINKS)]
    results: list[tuple[float, ...]] = []
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            for peer in (source, *sinks):
                await peer.connect(f"127.0.0.1:{port}")
            await asyncio.to_thread(relay.ask, "ready")
        expected = 0
        for frames in streams:
            expected += updates
            if profiled and frames is streams[-1]:
                relay.ask("profile")
            cpu_before = relay.ask("cpu")
            began = time.perf_counter()
            try:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    for frame in frames:
                        await source.stream.write(frame)
                    for sink in sinks:
                        await sink.until(expected)
            except TimeoutError:
                missing = [expected - sink.updates for sink in sinks]
                raise RuntimeError(f"updates have not reached the sinks: {missing}; were they too slow?") from None
            seconds = time.perf_counter() - began
            cpu = relay.ask("cpu") - cpu_before
            bare = [await asyncio.to_thread(relay.ask, in_turn, members, frames)] if in_turn else []
            results.append((seconds, cpu, *bare))
    finally:
        for peer in (source, *sinks):
            await peer.close()
    return results


class Peer:
    """A neighbour that knows gRPC and frames, and nothing of the protocol: it pulls nothing and holds nothing."""

    stream: DialledStream

    def __init__(self, name: str, members: Sequence[Member] = (), *, is_secured: bool = False) -> None:
        self.updates = 0
        identity = Identity.generate()
        self._credentials: Credentials = Credentials(identity) if is_secured else plain_text()
        member = introduce(identity, name)
        self._hello = Hello(RUN_ID, BASE_DIGEST, member, tuple(members))
        self._arrived = asyncio.Event()

    async def connect(self, address: str) -> None:
        self.stream = DialledStream(self._credentials, address)
        await self.stream.connect()
        for frame in encode(self._hello):
            await self.stream.write(frame)
        await self.stream.read()
        self._reader = asyncio.create_task(self._read())

    async def until(self, updates: int) -> None:
        while self.updates < updates:
            self._arrived.clear()
            await self._arrived.wait()

    async def close(self) -> None:
        self._reader.cancel()
        await self.stream.aclose()

    async def _read(self) -> None:
        while (data := await self.stream.read()) is not None:
            frame = pb.Frame.FromString(data)
            if frame.HasField("updates"):
                self.updates += len(frame.updates.origins)  # of one update each
                self._arrived.set()
            elif frame.HasField("pull"):
                for answer in encode(PullEnd(frame.pull.id, is_complete=True)):
                    await self.stream.write(answer)


# Pull


Form = Literal["bundles", "sums"]


def measure_pull(local_steps: int = 1, form: Form = "bundles") -> list[float]:
    """Updates per second. sums: what closed epochs add up to; the model that would take them in is not there."""
    with TemporaryDirectory(prefix="seedflood-pull-") as home:
        donor_home = Path(home, "donor")
        donor_home.mkdir()
        rules = _pull_rules(local_steps)
        updates = SUMMED_UPDATES if form == "sums" else PULLED_UPDATES
        origins = Origins(ORIGINS)
        with BundleJournal.open(
            donor_home / "journal.sqlite", RUN_ID, BASE_DIGEST, refresh_period=rules.refresh_period
        ) as journal:
            if form == "sums":
                _write_sums(journal, origins)
            else:
                journal.append(origins.say(updates, local_steps=local_steps), origins.members, durable=True)
        rates = []
        with Worker(serve_donor, str(donor_home), local_steps) as donor:
            port = donor.receive()
            for k in range(REPETITIONS):
                newcomer_home = Path(home, f"newcomer-{k}")
                newcomer_home.mkdir()
                with Worker(pull_all, str(newcomer_home), local_steps, port, updates) as newcomer:
                    rates.append(updates / newcomer.receive())
    return rates


def serve_donor(pipe: Connection, home: str, local_steps: int) -> None:
    take_core(0)

    async def serve() -> None:
        relay = Relay(Path(home), Identity.generate(), _pull_rules(local_steps), name="donor", verify=trust)
        pipe.send(await relay.start())
        garbage.settle()
        await asyncio.to_thread(next_question, pipe)
        await relay.close()

    uvloop.run(serve())


def pull_all(pipe: Connection, home: str, local_steps: int, port: int, updates: int) -> None:
    """The newcomer: reports how many seconds its pull took."""
    take_core(1)

    async def pull() -> float:
        relay = Newcomer(Path(home), Identity.generate(), _pull_rules(local_steps), name="newcomer", verify=trust)
        await relay.start([f"127.0.0.1:{port}"])
        garbage.settle()
        await relay.until(lambda: relay.pulled_at > 0)
        await relay.close()
        if relay.node.frontier.count() != updates:
            raise RuntimeError(f"{relay.node.frontier.count()} updates came instead of {updates}")
        return relay.pulled_at - relay.asked_at

    pipe.send(uvloop.run(pull()))


class Newcomer(Relay):
    """Notes when its pull begins and ends."""

    asked_at = pulled_at = 0.0

    def pull(self, peer: int, frontier: Any) -> None:
        self.asked_at = self.asked_at or time.perf_counter()
        super().pull(peer, frontier)

    def pulled(self, peer: int, is_complete: bool) -> None:
        if is_complete and not self.pulled_at:
            self.pulled_at = time.perf_counter()
        super().pulled(peer, is_complete)


def _pull_rules(local_steps: int) -> Rules:
    return make_rules(
        ORIGINS, STEPS, local_steps=local_steps, refresh_period=REFRESH_PERIOD, epoch_bytes=8 * COEFFICIENTS
    )


def _write_sums(journal: BundleJournal, origins: Origins) -> None:
    """Epochs of a model of OPT-125M's shapes at rank 32, with numbers as large as such sums are, and with the votes of
    all members: a sum that nobody has signed is not taken."""
    rng, members = random.Random(1), origins.members
    coefficients = pack(struct.pack(f"<{COEFFICIENTS}q", *(round(rng.gauss(0, 1 << 23)) for _ in range(COEFFICIENTS))))
    journal.append((), members, durable=True)
    for epoch in range(SUMMED_UPDATES // (ORIGINS * REFRESH_PERIOD)):
        frontier = Frontier()
        for member in members:
            frontier.add(member.origin, epoch * REFRESH_PERIOD, (epoch + 1) * REFRESH_PERIOD - 1)
        closed = ClosedEpoch(epoch, frontier.held(), coefficients)
        digests = digest_of(closed, 8 * COEFFICIENTS)
        journal.adopt(replace(closed, certificate=tuple(vote(one, epoch, digests) for one in origins.identities)))
