"""GASLoC as an algorithm of a swarm: puts its parts together, and passes on to each what concerns it."""

from collections.abc import Mapping
from dataclasses import replace

from seedflood.protocol.gasloc import orders
from seedflood.protocol.gasloc.agreement import Agreement
from seedflood.protocol.gasloc.carrier import Carrier
from seedflood.protocol.gasloc.conversation import Conversation
from seedflood.protocol.gasloc.copies import Fetch, Serve
from seedflood.protocol.gasloc.course import Checkpoints, Course
from seedflood.protocol.gasloc.exchange import Exchange
from seedflood.protocol.gasloc.joining import Joining
from seedflood.protocol.gasloc.messages import Progress
from seedflood.protocol.gasloc.pace import Pace
from seedflood.protocol.gasloc.phase import Lifecycle, Phase
from seedflood.protocol.gasloc.rules import GaslocRules, Habits
from seedflood.protocol.gasloc.sight import figures_of, find_blockers, words_of
from seedflood.protocol.gasloc.statement import Stated, rounds_of
from seedflood.protocol.gasloc.transfer import Sinks
from seedflood.protocol.gasloc.trust import Trust
from seedflood.protocol.origin import OriginId
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.membership import shorten
from seedflood.protocol.swarm.messages import AlgorithmMessage, Hello, Member
from seedflood.protocol.swarm.outputs import Outbox, Outputs
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.standstill import Standstill
from seedflood.protocol.view import Blocker, View


class Gasloc(Algorithm):
    """GASLoC on one node."""

    def __init__(
        self, rules: GaslocRules, presence: Presence, outbox: Outbox[Outputs], sinks: Sinks, habits: Habits
    ) -> None:
        bounds = habits.bounds
        self.life = Lifecycle()
        self.pace = Pace(bounds, presence.delays)
        self.carrier = Carrier(presence.neighbours, sinks, outbox, bounds.chunk_bytes)
        self.trust = Trust(presence, outbox)
        self.exchange = Exchange(rules, bounds, presence, self.pace, self.carrier, self.trust, outbox)
        self.serve = Serve(bounds, self.carrier, outbox)
        self.fetch = Fetch(rules, bounds, presence.neighbours, self.carrier, self.trust, self.serve, outbox)
        self.talk = Conversation(rules, presence, self.carrier, self.exchange, self.fetch, self.serve, self._where)
        self.joining = Joining(rules, habits.patience, presence, self.talk, self.fetch)
        self.agreement = Agreement(rules, habits, presence, self.pace, self.life, self.talk, outbox)
        self._checkpoints = Checkpoints(rules, habits.checkpoint_rounds, presence, self.life, outbox)
        self.course = Course(
            rules,
            habits.local_steps or rules.local_steps,
            presence,
            self.life,
            self.pace,
            self.exchange,
            self.talk,
            self.joining,
            self.agreement,
            self._checkpoints,
            outbox,
        )
        self._rules = rules
        self._presence = presence
        self._outbox = outbox
        self._standstill = Standstill()
        self.shown: dict[str, float] = {}
        """Figures of the compute side, which are shown beside ours."""

    # What the swarm says of us

    @property
    def has_spoken(self) -> bool:
        return self.course.has_spoken

    @property
    def is_amnesic(self) -> bool:
        return self.joining.is_amnesic

    def learn_of_past(self, member: Member) -> None:
        self.joining.learn_of_past(member)

    def state(self) -> bytes:
        choice = self.agreement.choice
        return Stated(self.round, self.pace.slow, choice.ours, tuple(choice.refused)).packed()

    def _where(self) -> Progress:
        """How far we are, as neighbours know it."""
        return Progress(self.round, self.life.is_active, self.is_ready)

    # What operators are shown

    @property
    def phase(self) -> str:
        return self.life.phase.value

    @property
    def round(self) -> int:
        """The one whose local steps are being done, or which is exchanged."""
        return self.course.round

    @property
    def step(self) -> int:
        return self._rules.step_of(self.round)

    @property
    def is_ready(self) -> bool:
        """Does it have parameters of the run, and take part?"""
        return self.life.phase not in (Phase.JOINING, Phase.LEFT)

    def describe(self, view: View) -> View:
        figures = {**view.figures, **figures_of(self), **self.shown}
        words = words_of(self, self._presence.membership, self._presence.ours.origin)
        pairs, copy = self.exchange.pairs, self.fetch.progress()
        members = tuple(replace(one, mark=self._rules.step_of(self.talk.round_of(one.origin))) for one in view.members)
        return replace(view, figures=figures, words=words, pairs=pairs, catching_up=copy, members=members)

    def blockers(self, now: float) -> tuple[Blocker, ...]:
        return tuple(find_blockers(self, self._presence.membership, now))

    # What happened

    def recall(self, records: Mapping[bytes, bytes], now: float) -> None:
        self.course.begin(now)

    def leave(self) -> None:
        if self.life.phase is Phase.LEFT:
            return
        self.course.break_off()
        self.talk.send_progress()
        self._presence.leave(min(self.step, self._rules.steps - 1) - 1)  # `Checkpoints.kept` states that we have ended

    def connected(self, peer: OriginId, hello: Hello, now: float) -> None:
        self._presence.declare_neighbours()  # who is matched with whom depends on it
        self.talk.connected(peer, now)

    def disconnected(self, peer: OriginId) -> None:
        self.talk.disconnected(peer)
        self._presence.declare_neighbours()

    def received(self, peer: OriginId, message: AlgorithmMessage, now: float) -> None:
        self.talk.received(peer, message, now)
        if peer in self.talk.progress:  # sooner than by its statement
            self.pace.reached({peer: self.talk.progress[peer].round}, now)

    # What the compute side answers

    def answer(self, answer: orders.Answer, now: float) -> None:
        match answer:
            case orders.Restored(round_):
                self.course.restored(round_)
            case orders.Stepped():
                self.course.stepped(now)
            case orders.Encoded(content):
                self.course.encoded(content, now)
            case orders.RoundMixed(refused):
                self.exchange.refused(refused)
            case orders.Checkpointed(round_, is_written):
                self._checkpoints.kept(round_, is_written=is_written)
            case orders.Opened(peer, copy, round_):
                self.serve.opened(peer, copy, round_, now)
            case orders.Adopted(is_right):
                self.course.adopted(is_right=is_right)
            case orders.Ready(content):
                self.agreement.published(content)
            case orders.Taken():
                self.agreement.taken(answer)

    # What is due

    def advance(self, now: float) -> None:
        if self._presence.changed:
            changed = set(self._presence.changed)
            self._presence.changed.clear()
            self.pace.reached(rounds_of(self._presence.membership, changed), now)
        self.carrier.advance(now)
        self.serve.advance(now)
        self.exchange.advance(now)
        self.course.advance(now)

    def compare(self, now: float) -> None:
        """Repeats messages that may have been lost, and sends all neighbours how far we are."""
        self.talk.send_progress()
        self.exchange.remind()
        self._checkpoints.try_again()
        if self.state() != self._presence.ours.algorithm and self.life.phase is not Phase.LEFT:
            self._presence.declare()

    def report(self, now: float) -> None:
        if (copy := self.fetch.progress()) is not None:
            donor = self._presence.membership.name(copy.donor)
            self._outbox.log("copy under way", donor=donor, held=copy.held, wanted=copy.wanted)
        found = self.blockers(now)
        if found and self._standstill.lasts((self.life.phase, self.round), now):
            facts = {"waiting_for": shorten([one.name for one in found]), "why": sorted({one.kind for one in found})}
            self._outbox.log("waiting", "warning", step=self.step, **facts)

    def wake_at(self, now: float) -> float:
        times = [self.exchange.wake_at(), self.serve.wake_at(), self.fetch.wake_at(now)]
        if self.life.phase is Phase.JOINING:
            times.append(self.joining.patient_until)
        if self.agreement.wait.is_under_way:
            times.append(self.agreement.wait.wake_at())
        if self.life.phase in (Phase.CHOOSING, Phase.FINISHING):
            times.append(self.agreement.wake_at(now))
        later = (one for one in times if one > now)
        return min(self.carrier.wake_at(), *later, float("inf"))
