"""Another algorithm than SeedFlood, small enough to be read at once: hosts draw lots.

In each step every host draws a number, and tells it to everyone; the next step begins when the numbers of all are
known. A host that draws twice for one step makes others know two numbers, so what was drawn is kept before it is told,
and a host whose disk was lost draws nothing before a neighbour has told it all that is known. In the end all have the
same numbers, and so the same mean.
"""

import struct
from dataclasses import replace
from math import fsum

from seedflood.errors import PeerError
from seedflood.protocol.swarm.admission import MemberAdmission
from seedflood.protocol.swarm.algorithm import Algorithm
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.outputs import Outbox, Outputs, Record
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.protocol.swarm.swarm import Swarm
from seedflood.protocol.view import Blocker

LOT = struct.Struct(">QQd")
"""(origin, step, number)"""
NAME_BYTES = 16
NEWS, ALL = b"n", b"a"
"""How messages begin: lots that were not known here, or all that are."""
WHOLE = Record(b"whole", b"")
"""Nothing that was ever told is missing in the journal."""
DONE = struct.Struct(">Q")


def lots_of(message):
    """Raises PeerError."""
    if len(message.data) % LOT.size != 1:
        raise PeerError("no lots", reason="limit")
    return LOT.iter_unpack(message.data[1:])


def check_state(state):
    """Raises PeerError: what no host states."""
    if len(state) != DONE.size:
        raise PeerError("no count of steps", reason="limit")


class Lots(Algorithm):
    """known: (origin, step) -> number. What a host states is how many steps it has finished."""

    has_spoken, step, phase = False, 0, "drawing"

    def __init__(self, rules, presence, outbox, *, is_key_fresh):
        """is_key_fresh: nothing was ever told under our key."""
        self.known = {}
        self._rules, self._presence, self._outbox = rules, presence, outbox
        self._asked, self._since, self._is_key_fresh = -1, 0.0, is_key_fresh

    # What was drawn, here and elsewhere

    def answer(self, answer, now):
        """(step, number): what was ordered of a step is drawn."""
        step, number = answer
        self._learn({(self._presence.ours.origin, step): number})

    def received(self, peer, message, now):
        told = {(origin, step): number for origin, step, number in lots_of(message)}
        if any(self.known.get(name, number) != number for name, number in told.items()):
            raise PeerError("two lots of one host for one step", reason="contradiction")
        self._learn(told, source=peer)
        if message.data.startswith(ALL):
            self._begin()

    def _begin(self):
        if not self.has_spoken:
            self.has_spoken = True
            self._outbox.keep_record(WHOLE)

    def _learn(self, told, source=None):
        news = {name: number for name, number in told.items() if name not in self.known}
        self.known |= news
        lots = [LOT.pack(*name, number) for name, number in news.items()]
        for lot in lots:
            self._outbox.keep_record(Record(lot[:NAME_BYTES], lot[NAME_BYTES:]))
        for peer in self._presence.neighbours:
            if news and peer != source:
                self._outbox.send(peer, Opaque(NEWS + b"".join(lots)))

    def _tell_all(self, peer):
        self._outbox.send(peer, Opaque(ALL + b"".join(LOT.pack(*name, number) for name, number in self.known.items())))

    @property
    def is_ready(self):
        return self.has_spoken

    # What is due

    def recall(self, records, now):
        self._since = now
        lots = [LOT.unpack(name + number) for name, number in records.items() if name != WHOLE.key]
        self.known = {(origin, step): number for origin, step, number in lots}
        if self._is_key_fresh or WHOLE.key in records:
            self._begin()
        self._presence.declare(first_step=0)

    def advance(self, now):
        began_with = self.step
        while self.step < self._rules.steps and sum(step == self.step for _, step in self.known) == self._rules.clients:
            self.step, self._since = self.step + 1, now
        if self.step > began_with:
            self._presence.declare()
        if self.phase == "drawing" and self.step < self._rules.steps:
            self._ask_for(self.step)
        elif self.phase == "drawing" and len(self._unfinished()) == 0:
            self.phase = "finished"
            self._outbox.finish()

    def _ask_for(self, step):
        if self.has_spoken and self._asked < step and (self._presence.ours.origin, step) not in self.known:
            self._asked = step
            self._outbox.order(step)

    def _unfinished(self):
        """Who is known not to have all numbers yet, or not known at all."""
        members = self._presence.membership.all()
        behind = [one for one in members if not one.algorithm or DONE.unpack(one.algorithm)[0] < self._rules.steps]
        return behind + [None] * (self._rules.clients - len(members))

    def compare(self, now):
        for peer in self._presence.neighbours:
            self._tell_all(peer)

    def connected(self, peer, hello, now):
        self._tell_all(peer)

    def leave(self):
        self.phase = "left"
        self._presence.leave(self.step - 1)

    def state(self):
        return DONE.pack(self.step)

    def blockers(self, now):
        if self.phase != "drawing":
            return ()
        names = [one.name if one else "somebody" for one in self._unfinished()]
        return tuple(Blocker("lot", None, name, self.step, self._since) for name in names)

    def describe(self, view):
        numbers = self.known.values()
        return replace(view, figures={"mean": fsum(numbers) / len(numbers)} if numbers else {})


class LotNode(Swarm):
    def __init__(self, rules, member, sign, verify, access=None, *, is_key_fresh=True):
        """access: who belongs to the run; by default everyone."""
        admission, outbox = MemberAdmission(rules, verify, access, check_state=check_state), Outbox(Outputs)
        presence = Presence(rules, member, sign, admission, outbox)
        self.lots = Lots(rules, presence, outbox, is_key_fresh=is_key_fresh)
        super().__init__(presence, self.lots, outbox, Patience(repair_seconds=1.0))
