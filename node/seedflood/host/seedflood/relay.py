"""A relay on a host: journal, node and links, and no torch (`protocol/seedflood/relaying` says what it does).

Two things that every node knows follow from the model, which a relay has not: the digest of the base model, and the
form of updates (`protocol/seedflood/form`). It learns them once, from the first neighbour that says hello and
belongs to the run, then keeps them in its state folder. Before that it is no node, and refuses every link with a word
that makes others dial again.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from seedflood import durable
from seedflood.config import Settings
from seedflood.errors import ConfigError, PeerError, RunMismatchError, SeedfloodError
from seedflood.host.compute import ComputeThread
from seedflood.host.enrolment import Enrolment
from seedflood.host.places import FORM_FILE, read_result
from seedflood.host.seedflood.flooding import FloodEngine, make_rules, open_journal
from seedflood.host.seedflood.seams import Adopt, Job, Replay, Seal
from seedflood.identity import Identity, verify
from seedflood.log import log
from seedflood.operations.hub import TelemetryHub
from seedflood.protocol.origin import STEP_MAX, OriginId
from seedflood.protocol.seedflood.epochs import sum_bytes_max
from seedflood.protocol.seedflood.form import Form, unpack_form
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.outputs import ClosedWindow
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.admission import NOT_LISTED
from seedflood.protocol.swarm.messages import Hello, Member
from seedflood.storage.disk import disk_errors
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.transport.credentials import Credentials
from seedflood.transport.links import Links
from seedflood.transport.owner import LinkSettings, Owner

BASE_DIGEST_BYTES = 32


Known = tuple[bytes, Form]
"""What a relay has of the run from others: the digest of the base model, 32 bytes, and the form of updates."""


async def open_relay(
    settings: Settings, identity: Identity, _: ComputeThread, hub: TelemetryHub, undo: AsyncExitStack
) -> "RelayEngine":
    """Learns what the run is, if it is not known yet, and opens the journal. Raises SeedfloodError."""
    path = settings.node.state / FORM_FILE
    try:
        kept = path.read_bytes()
        learned = kept[:BASE_DIGEST_BYTES], unpack_form(kept[BASE_DIGEST_BYTES:])
    except FileNotFoundError:
        hub.log("waiting for a neighbour that states the base model and the form of updates", dials=len(settings.peers))
        learned, name = await _Learner(settings, identity).learn()
        with disk_errors(path, "write", "form of updates"):
            durable.write(path, learned[0] + learned[1].pack())
        hub.log("learned the base model and the form of updates", "info", peer=name)
    except (OSError, PeerError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); delete it, and it is learned again.") from None
    rules = make_rules(settings.run, *learned)
    journal = undo.enter_context(await asyncio.to_thread(open_journal, settings, rules.base_digest))
    if any(member.origin == identity.origin and member.has_spoken for member in journal.members()):
        raise ConfigError("this host has trained in this run, and others wait for it: give the relay another --state.")
    return RelayEngine(settings, rules, journal)


class RelayEngine(FloodEngine):
    """One node that passes on what others say."""

    def __init__(self, settings: Settings, rules: Rules, journal: BundleJournal) -> None:
        super().__init__(settings, journal, ())
        self._rules = rules
        self._logged_at = float("-inf")
        """When the last line of progress was logged."""

    @property
    def frame_bytes_max(self) -> int:
        """How large an epoch is, a neighbour has sent: what is kept of one follows from what the wire carries."""
        return sum_bytes_max(self._rules)

    def assemble(self, member: Member) -> None:
        sign = self.daemon.identity.sign
        self._connect(Node(self._rules, member, sign, verify, access=self.daemon.access, is_relay=True))

    def start(self) -> None:
        self.driver.start(self.journal.members())

    def result(self) -> dict[str, Any]:
        """digest: of the replicas of hosts that hold what we hold, as they sent it, if only before our last start."""
        digest = self.node.divergence.digest_at(self.node.frontier.digest()).hex()
        facts = {"role": "relay", "updates": self.node.frontier.count()}
        before = read_result(self._settings.node.state)
        is_as_before = all(before.get(key) == value for key, value in facts.items())
        return facts | {"digest": digest or (before.get("digest", "") if is_as_before else "")}

    def applied(self, window: ClosedWindow) -> None:
        now = self.daemon.loop.time()
        if now - self._logged_at >= self._settings.node.progress_seconds:
            self._logged_at = now
            held, peers = self.node.frontier.count(), len(self.node.neighbours)
            log.info("progress", step=self.node.step, steps=self._rules.steps, updates=held, peers=peers)

    def _find_update(self, origin: OriginId, step: int) -> tuple[bool, bool]:
        return self.node.frontier.holds(origin, step), False

    # What would be a model's

    def _put(self, job: Job) -> None:
        match job:
            case Replay(pages):
                self._read_on(pages)
            case ClosedWindow() | Adopt() | Seal():
                pass
            case _:
                raise AssertionError("a relay is asked for what only a model can do")

    def _read_on(self, pages: Iterator[Sequence[Any]]) -> None:
        """Reads the journal page by page, so that the node knows what it holds; others are served in between."""
        if not self.driver.is_halted and next(pages, None) is not None:
            asyncio.get_running_loop().call_soon(self.daemon.drive, lambda: self._read_on(pages))


class _Learner(Owner):
    """The owner of the links of a relay that does not know its run yet."""

    def __init__(self, settings: Settings, identity: Identity) -> None:
        self._settings = settings
        self._enrolment = Enrolment.open(settings, identity)
        self._run_id = settings.run.run_id()
        member = Member(identity.public_key, settings.node.name, incarnation=0, first_step=STEP_MAX)
        self._member = replace(member, signature=identity.sign(member.signed_bytes(self._run_id)))
        self._credentials = Credentials(identity, proxy_of=settings.node.proxy_of)
        self._found: asyncio.Future[tuple[Known, str]] = asyncio.get_running_loop().create_future()
        self._strangers: set[str] = set()

    async def learn(self) -> tuple[Known, str]:
        """(what was learned, the name of who sent it). Raises SeedfloodError."""
        node = self._settings.node
        links = Links(LinkSettings(node.listen), self, credentials=self._credentials)
        try:
            if node.listen:
                await links.start()
            links.dial([peer.address for peer in self._settings.peers], self._settings.pins)
            return await self._found
        finally:
            await links.close()

    def hello(self) -> Hello:
        return Hello(self._run_id, b"", self._member, roster=self._enrolment.access.roster)

    def is_welcome(self, hello: Hello) -> None:
        """Learns from who belongs to the run and knows it. Always raises PeerError: there is no node to link with."""
        access = self._enrolment.access
        if hello.roster is not None and access.is_news(hello.roster):
            access.adopt(hello.roster)
            self._enrolment.keep(hello.roster)
        member = hello.member
        if not access.may_link(member.public_key):
            raise PeerError(NOT_LISTED, reason="roster")
        if not verify(member.public_key, member.signed_bytes(self._run_id), member.signature):
            raise PeerError(f"the membership statement of {member.name} has a wrong signature", reason="signature")
        if len(hello.base_digest) != BASE_DIGEST_BYTES:
            raise PeerError("this relay has still to learn the run itself", reason="stopping")
        if not self._found.done():
            self._found.set_result(((hello.base_digest, unpack_form(hello.form)), member.name))
        raise PeerError("this relay has just learned the run from you; dial it again", reason="stopping")

    def refused(self, address: str, error: SeedfloodError) -> None:
        if isinstance(error, RunMismatchError) and self._enrolment.access.may_link(error.public_key or b""):
            self._strangers.add(address)
            if self._strangers >= {peer.address for peer in self._settings.peers} and not self._found.done():
                self._found.set_exception(error)

    def failed(self, error: BaseException) -> None:
        if not self._found.done():
            self._found.set_exception(error)
