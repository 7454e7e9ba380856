"""The node: one origin's part of the protocol, as a pure state machine.

Put in what happened (`connected`, `received`, `published`, `tick`, ...), then `collect` what is to be done. No method
blocks, performs anything or asks for the time. A method that raises `PeerError` has changed nothing but counters.

The life of a round, from the first step to the last:

    joining     until one neighbour's frontier was reached: nobody speaks before knowing what it said in a past life
    measuring   `Outputs.measure` was handed out, `published` is awaited
    collecting  the own bundle is published; the window is open until `window.close_reason` finds a reason
    finishing   no steps are left: wait until the neighbours hold everything, then `Outputs.is_finished`
    left        `leave` was called: relay until the shell closes the links, say nothing of our own
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from seedflood.errors import PeerError
from seedflood.protocol.admission import Admission
from seedflood.protocol.delays import HopDelays
from seedflood.protocol.ending import holds_everything, may_end
from seedflood.protocol.flood import Flood
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.membership import Membership
from seedflood.protocol.messages import (
    STEP_MAX,
    Bundle,
    FrontierDigest,
    Goodbye,
    Hello,
    Member,
    Members,
    Message,
    OriginId,
    Ping,
    Pong,
    Sign,
    Updates,
    Verify,
)
from seedflood.protocol.outputs import ClosedWindow, Event, EventLevel, Measure, Outputs
from seedflood.protocol.pending import Pending, describe_closing
from seedflood.protocol.repair import Repair
from seedflood.protocol.rounds import first_round, next_round, round_of
from seedflood.protocol.rules import Patience, Rules
from seedflood.protocol.standstill import Standstill
from seedflood.protocol.window import Window, bound_seconds


class Phase(Enum):
    JOINING = "joining"
    MEASURING = "measuring"
    COLLECTING = "collecting"
    FINISHING = "finishing"
    LEFT = "left"


class Node:
    """One origin. `member` says who: key, name, incarnation; its signature is made here."""

    def __init__(
        self,
        rules: Rules,
        member: Member,
        sign: Sign,
        verify: Verify,
        *,
        patience: Patience | None = None,
    ) -> None:
        self.rules = rules
        self.origin = member.origin
        self.phase = Phase.JOINING
        self.step = 0
        """First step of the round that is measured or collected now."""
        self.frontier = Frontier()
        self.membership = Membership()
        self.flood = Flood()
        self.admission = Admission(rules, verify, self.membership, self.frontier)
        self.duplicates = 0
        self._repair = Repair()
        self._window: Window | None = None
        self._pending = Pending()
        self._sign = sign
        self._patience = patience or Patience()
        self._delays = HopDelays()
        self._started_at = 0.0
        self._repair_at = 0.0
        self._finishing_since = 0.0
        self._is_finished = False
        self._is_complete_said = False
        self._standstill = Standstill()
        self._out = Outputs()
        self._member = member

    # What happened

    def start(self, bundles: Iterable[Bundle], members: Iterable[Member], now: float) -> None:
        """Begins, or goes on with what the journal holds: `bundles` and `members`, checked when they were journalled.

        The round of the last own bundle is open again. What came before it is applied at once, the rest waits for its
        window: exactly as if the process had never ended. A node that had left, or never spoke, is expected by nobody
        until it has caught up and says from which step on it takes part; what it said before it left is still awaited.
        """
        for member in members:
            self.membership.believe(member)
        past = self.membership.get(self.origin)
        for bundle in bundles:
            self.frontier.add(bundle.origin, bundle.first_covered, bundle.last)
            self._pending.bundles.append(bundle)
        self._started_at = self._repair_at = now
        last_own = self.frontier.last(self.origin)
        if past is not None and past.has_left:
            self._declare(replace(self._member, first_step=past.first_step, last_step=past.last_step))
            self.step = last_own + 1
        elif last_own < 0 or past is None:
            self._declare(replace(self._member, first_step=STEP_MAX))
        else:
            self._declare(replace(self._member, first_step=past.first_step))
            self.step = round_of(last_own, self.rules)
            self._apply(self._pending.take_before(self.step))
            self._open_window(now)
        self._advance(now)

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        """A link is up and both hellos were exchanged; `admission.check_hello` has accepted this one."""
        self.flood.connect(peer, hello.frontier)
        self._believe(hello.member, source=peer)
        for member in hello.members:
            self._believe(member, source=peer)
        self._declare_neighbours()
        self.flood.offer_members(peer, self.membership.newer_than((hello.member, *hello.members)))
        self.flood.offer(peer, self._pending.bundles)
        self._repair.connect(peer, hello.frontier, self.frontier)
        self._ping(peer, now)
        self._event("link up", peer=hello.member.name)
        self._advance(now)

    def disconnected(self, peer: OriginId, now: float, reason: str = "") -> None:
        self.flood.disconnect(peer)
        self._repair.disconnect(peer)
        self._declare_neighbours()
        self._event("link down", peer=self.membership.name(peer), reason=reason)
        self._advance(now)

    def received(self, peer: OriginId, message: Message, now: float) -> None:
        """Takes a message of a linked peer. Raises PeerError, having used nothing, if it is not allowed."""
        if peer not in self.flood.neighbours:
            return  # it arrived while the link went down; repair brings what it said
        match message:
            case Updates(bundles):
                self._receive_bundles(peer, bundles)
            case Members(members):
                for member in members:
                    self.admission.check_member(member)
                for member in members:
                    self._believe(member, source=peer, is_checked=True)
            case FrontierDigest():
                self._repair.compare(peer, message, self.frontier)
            case Ping(sent_at):
                self._out.send.append((peer, Pong(sent_at)))
            case Pong(sent_at):
                self._delays.pong(peer, sent_at, now)
            case Goodbye():
                pass
            case Hello():
                raise PeerError("a second hello on one link", reason="order")
        self._advance(now)

    def pulled(self, peer: OriginId, now: float) -> None:
        """A pull from the peer ended, whole or broken off."""
        self._repair.pulled(peer, self.frontier)
        self._advance(now)

    def published(self, step: int, probes: Sequence[tuple[int, int]], now: float) -> None:
        """Our measurement of the round that starts at `step` is done: (seed, scalar) of each step."""
        if self.phase is not Phase.MEASURING or step != self.step:
            return  # the round was overtaken by a drain
        last_own = self.frontier.last(self.origin)
        if last_own < step:  # else what a past life of ours said turned up meanwhile: it stands
            bundle = Bundle(self.origin, step, tuple(probes), skipped=step - last_own - 1)
            key = self._member.public_key
            bundle = replace(bundle, signature=self._sign(bundle.signed_bytes(self.rules.run_id, key)))
            self._out.is_durable = True
            self._take(bundle)
        self._open_window(now)
        self._advance(now)

    def leave(self, now: float) -> None:
        """The operator wants us to go: say so, so that nobody waits for us. Relaying goes on."""
        if self.phase is not Phase.LEFT:
            self.phase = Phase.LEFT
            if not self._member.has_left:
                self._declare(replace(self._member, last_step=self.frontier.last(self.origin)))
            self._advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; call it when `next_tick` says so. More often does no harm."""
        if now >= self._repair_at:
            self._repair_at = now + self._patience.repair_seconds
            self._repair.retry()
            before = self._repair.settled_before(self.frontier, self.step, self.rules.local_steps)
            self._say_digests(before)
            if self._standstill.lasts((self.phase, self.step), now) and self._is_waiting():
                self._event("waiting", level="warning", step=self.step, waiting_for=self.waiting_for())
            for peer in self.flood.neighbours:
                self._ping(peer, now)
        self._advance(now)

    # What to do

    def collect(self) -> Outputs:
        """Takes what is to be done now."""
        out, self._out = self._out, Outputs()
        out.send = [*self.flood.collect(), *out.send]
        out.pull = [(peer, self.frontier.held()) for peer in self._repair.collect()]
        return out

    def next_tick(self, now: float) -> float:
        """When `tick` is to be called at the latest."""
        times = [self._repair_at]
        if self._window is not None and self.phase is Phase.COLLECTING:
            times.append(self._window.wake_at(self.membership, self._bound))
        if self.phase is Phase.FINISHING:
            lingering_until = self._finishing_since + self._patience.linger_seconds
            times.append(lingering_until if lingering_until > now else float("inf"))
        return max(now, min(times))

    def hello(self) -> Hello:
        """What to say first on a new link."""
        others = tuple(member for member in self.membership.all() if member.origin != self.origin)
        return Hello(self.rules.run_id, self.rules.base_digest, self._member, others, self.frontier.held())

    def waiting_for(self) -> list[str]:
        """Names of those for whom a node that does not move waits."""
        if self.phase is not Phase.COLLECTING or self._window is None:
            return sorted(map(self.membership.name, self.flood.neighbours)) or ["any neighbour"]
        names = sorted(map(self.membership.name, self._window.waiting))
        return names + ["(never joined)"] * max(0, self.rules.clients - self.membership.taking_part)

    def _is_waiting(self) -> bool:
        return self.phase in (Phase.JOINING, Phase.COLLECTING, Phase.FINISHING) and not self._is_finished

    # Deciding

    def _receive_bundles(self, peer: OriginId, bundles: Sequence[Bundle]) -> None:
        news: list[Bundle] = []
        for bundle in bundles:
            if self.frontier.holds(bundle.origin, bundle.first_covered, bundle.last):
                self.duplicates += 1
                self.flood.heard(peer, bundle)
                continue
            if self.admission.admits(bundle):
                news.append(bundle)
        for bundle in news:
            self.flood.heard(peer, bundle)
            if not self.frontier.holds_any(bundle.origin, bundle.first_covered, bundle.last):
                if bundle.origin == self.origin and self.phase is not Phase.JOINING:
                    self._event("another host speaks with our key", level="error", step=bundle.step)
                self._take(bundle)
        self._repair.progressed(self.frontier)

    def _take(self, bundle: Bundle) -> None:
        """A bundle that is news, our own or another's: persist it, pass it on, keep it for its window."""
        self.frontier.add(bundle.origin, bundle.first_covered, bundle.last)
        if self._window is not None:
            self._window.hear(bundle.origin, self.frontier)
        self._out.bundles.append(bundle)
        self._pending.bundles.append(bundle)
        self.flood.spread(bundle)

    def _believe(self, member: Member, *, source: OriginId, is_checked: bool = False) -> None:
        if not self.membership.is_news(member):
            return
        if not is_checked:
            self.admission.check_member(member)
        if member.origin == self.origin:
            # A past life of ours said this, or a copy of our key lives: speak last.
            self._declare(replace(self._member, incarnation=member.incarnation + 1))
            return
        self._out.events += self.membership.describe_news(member, self.rules.clients)
        self._keep(member)
        self.flood.spread_member(member, source)

    def _declare(self, member: Member) -> None:
        """Makes, keeps and floods a new statement about ourselves."""
        known = self.membership.get(self.origin)
        if known is not None and known.age >= member.age:
            incarnation, version = known.age
            member = replace(member, incarnation=incarnation, version=version + 1)
        neighbours = tuple(sorted(self.flood.neighbours))
        member = replace(member, neighbours=neighbours, signature=b"")
        member = replace(member, signature=self._sign(member.signed_bytes(self.rules.run_id)))
        self._member = member
        self._keep(member)
        self._out.is_durable = True
        self.flood.spread_member(member)

    def _keep(self, member: Member) -> None:
        self.membership.believe(member)
        self._out.members.append(member)
        if self._window is not None:
            self._window.expect(self.membership, self.frontier)

    def _declare_neighbours(self) -> None:
        if tuple(sorted(self.flood.neighbours)) != self._member.neighbours:
            self._declare(self._member)

    # Rounds

    def _advance(self, now: float) -> None:
        """Takes every transition that is due. The only place where the phase moves forward."""
        if self.phase is Phase.JOINING and self._may_speak():
            self._event("caught up", updates=self.frontier.count())
            if self._window is not None:
                self.phase = Phase.COLLECTING
            else:
                first = first_round(self.origin, self.rules, self.membership, self.frontier)
                if first < self.rules.steps or not self._member.has_left:
                    self._declare(replace(self._member, first_step=first, last_step=None))
                self._apply(self._pending.take_before(first))
                self._begin_round(first, now)
        while self.phase is Phase.COLLECTING and self._window is not None:
            reason = self._window.close_reason(self.membership, now, self._bound)
            if reason is None:
                break
            window, self._window = self._window, None
            closed = self._pending.take_window(window, reason, now)
            self._apply(closed)
            self._out.events.append(describe_closing(closed, self.membership))
            following = next_round(self.step, self.origin, self.rules, self.membership, self.frontier)
            self._apply(self._pending.take_before(following))
            self._begin_round(following, now)
        if self.phase is Phase.FINISHING:
            self._apply(self._pending.take_before(self.rules.steps))
            if not self._is_finished:
                self._finish(now)

    def _may_speak(self) -> bool:
        """Has a neighbour told what it holds, or is there nothing to be told: alone, or the journal has a whole run?"""
        is_alone = self.rules.clients == 1
        return self._repair.is_caught_up or is_alone or holds_everything(self.rules, self.membership, self.frontier)

    def _begin_round(self, step: int, now: float) -> None:
        self.step = step
        if step < self.rules.steps:
            self.phase = Phase.MEASURING
            self._out.measure = Measure(step, self.rules.local_steps)
            return
        self.phase = Phase.FINISHING
        self._finishing_since = now
        self._event("no steps left", step=step)
        last_own = self.frontier.last(self.origin)
        if last_own < self.rules.steps - 1:  # joined too late to take part in the last round
            self._declare(replace(self._member, last_step=last_own))

    def _open_window(self, now: float) -> None:
        until_joined = self._started_at + self._patience.start_seconds
        last = self.step + self.rules.local_steps - 1
        self._window = Window(self.step, last, now, self.rules.window, self.rules.clients, until_joined)
        self._window.expect(self.membership, self.frontier)
        if self.phase is Phase.MEASURING:
            self.phase = Phase.COLLECTING

    def _apply(self, closed: ClosedWindow | None) -> None:
        if closed is not None:
            self._out.apply.append(closed)

    def _finish(self, now: float) -> None:
        if self._is_complete() and not self._is_complete_said:
            self._is_complete_said = True
            self._say_digests()
        is_patient = now - self._finishing_since < self._patience.linger_seconds
        known = (self.origin, self.rules, self.membership, self.frontier, self._repair)
        if may_end(*known, self.flood.neighbours, is_patient=is_patient):
            self._is_finished = True
            self._say_digests()
            self._declare(replace(self._member, last_step=self.frontier.last(self.origin)))
            self._out.is_finished = True

    def _is_complete(self) -> bool:
        """Does the node need nothing more for this run?"""
        return self.phase is Phase.FINISHING and self.membership.is_all_held(self.frontier, self.rules.steps - 1)

    def _say_digests(self, before: int = STEP_MAX) -> None:
        is_complete = self._is_complete()
        before = STEP_MAX if is_complete else before
        digest = FrontierDigest(self.frontier.digest(before), before, is_complete)
        self._out.send += [(peer, digest) for peer in self.flood.neighbours]

    def _bound(self) -> float:
        return bound_seconds(self.membership.diameter(), self._delays.slowest_seconds)

    def _ping(self, peer: OriginId, now: float) -> None:
        self._delays.ping(peer, now)
        self._out.send.append((peer, Ping(now)))

    def _event(self, name: str, *, level: EventLevel = "info", **facts: object) -> None:
        self._out.events.append(Event(name, level, facts))
