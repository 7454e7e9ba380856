"""A node without a model: the driver, journal and links of the daemon, and nothing to train.

What benchmarks of flooding measure. It answers orders as a daemon does, except that a measurement takes no time, or is
withheld until `publish` is called, so that the node has nothing to do but relay.
"""

import asyncio
import hashlib
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.shell import Shell
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.seams import Job, Refill
from seedflood.identity import Identity, verify
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Updates
from seedflood.protocol.seedflood.messages import ClosedEpoch, ReplicaDigest
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, Measured, TakeDigest
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Member, Message, Verify
from seedflood.protocol.swarm.outputs import Event
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.transport.budget import Use
from seedflood.transport.credentials import Credentials
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings

RUN_ID = hashlib.sha256(b"a run without a model").digest()
BASE_DIGEST = bytes(32)


def make_rules(
    clients: int, steps: int, *, local_steps: int = 1, refresh_period: int | None = None, epoch_bytes: int = 0
) -> Rules:
    """Windows are bounded, so that a node goes on if the others publish nothing. refresh_period: None for a single
    epoch."""
    return Rules(
        RUN_ID,
        BASE_DIGEST,
        clients,
        steps,
        window="bounded",
        local_steps=local_steps,
        refresh_period=refresh_period or steps * local_steps,
        epoch_bytes=epoch_bytes,
    )


def trust(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """In the place of `verify`: how the signature check is taken out of a measurement."""
    return True


def cpu_seconds() -> float:
    """Of this process so far, all of its threads, kernel included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Relay(Shell):
    """One node. `start`, `dial`, `publish`; `until` waits for something; `close`.

    received_at: when each update of others was held here, by (origin, first step); kept if `notes_times`.
    """

    node: Node
    driver: SeedfloodDriver

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        rules: Rules,
        *,
        name: str,
        verify: Verify = verify,
        notes_times: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self.identity = identity
        self.received_at: dict[tuple[OriginId, int], float] = {}
        self.sent_at: dict[int, float] = {}
        """When an own bundle, durable by then, was handed to the links: by first step."""
        self._journal = BundleJournal.open(
            folder / "journal.sqlite", RUN_ID, BASE_DIGEST, refresh_period=rules.refresh_period
        )
        member = Member(identity.public_key, name, self._journal.next_incarnation(at_least=int(time.time())))
        self.node = Node(rules, member, identity.sign, verify)
        self._loop = asyncio.get_running_loop()
        self.driver = SeedfloodDriver(self.node, self._journal, self, self.put, self, self._loop.time)
        self.links = Links(LinkSettings("127.0.0.1:0"), self, credentials=credentials)
        self._notes_times = notes_times
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._wanted: Measure | None = None
        """The measurement that was ordered last."""

    async def start(self, addresses: Sequence[str] = ()) -> int:
        """Goes on with what the journal holds, listens and dials; returns the port."""
        port = await self.links.start()
        members = self._journal.members()
        self.drive(lambda: self.driver.start(members))
        self.links.dial(addresses)
        return port

    async def close(self) -> None:
        self.driver.halt()
        await self.links.close()
        self.rest()
        self._journal.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Asked after everything that happens. Raises what has failed."""
        while not condition():
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def publish(self, probes: Sequence[tuple[int, int]]) -> int:
        """As if the ordered measurement were done; returns its first step."""
        order = self._wanted
        assert order is not None, "nothing was ordered: the node has not caught up"
        self._wanted = None
        self.drive(lambda: self.driver.answered(Measured(order.step, probes)))
        return order.step

    @property
    def is_measuring(self) -> bool:
        """May it publish?"""
        return self._wanted is not None

    # What the links tell

    def received(self, peer: OriginId, message: Message) -> Use:
        held, seen = self.driver.node.duplicates, len(message.bundles) if isinstance(message, Updates) else 0
        self.drive(lambda: self.driver.received(peer, message))
        held = self.driver.node.duplicates - held
        if self._notes_times and isinstance(message, Updates):
            now = time.perf_counter()
            for bundle in message.bundles:
                self.received_at.setdefault((bundle.origin, bundle.step), now)
        return Use(seen - held, held)

    def failed(self, error: BaseException) -> None:
        self.driver.halt()
        self._error = error
        self._changed.set()

    # What the driver asks

    def send(self, peer: OriginId, messages: Sequence[Message]) -> None:
        if self._notes_times:
            self._note_own(messages)
        self.links.send(peer, messages)

    def put(self, job: Job) -> None:
        match job:
            case Measure():
                self._wanted = job
            case TakeDigest(digest):  # equal sets of updates have equal digests here, too
                self._loop.call_soon(self.drive, lambda: self.driver.answered(ReplicaDigest(digest, digest)))
            case Refill():
                raise AssertionError("digests cannot differ here")
        # A sum is never answered: all is kept as bundles.

    def noted(self, event: Event) -> None:
        pass

    def learned(self, bundles: Sequence[Bundle], source: OriginId | None) -> None:
        pass

    def adopted(self, closed: ClosedEpoch, source: OriginId | None) -> None:
        pass

    def applied(self, window: ClosedWindow) -> None:
        pass

    def finished(self) -> None:
        pass

    def _note_own(self, messages: Sequence[Message]) -> None:
        now = time.perf_counter()
        for message in messages:
            if isinstance(message, Updates):
                for bundle in message.bundles:
                    if bundle.origin == self.identity.origin:
                        self.sent_at.setdefault(bundle.step, now)

    def happened(self) -> None:
        self._changed.set()
