"""Liars of a closed run: hosts that are on the roster, and help those who are not.

An accomplice passes on what strangers sign, live and in its answers to pulls, and sends rosters that are old, forged or
of another operator. All signatures but those of the forged rosters are valid.
"""

from collections.abc import Iterable
from dataclasses import replace

from seedflood.protocol.seedflood.bundles import Bundle, Updates, make_bundle
from seedflood.protocol.swarm.messages import Member, Members
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.transport.answer import AnswerItem
from simulation.link import Item
from simulation.operator import NAME, Operator
from simulation.seedflood.compression import draw_round
from simulation.seedflood.host import SeedfloodHost
from simulation.seedflood.world import SeedfloodWorld

LIE_SECONDS = 0.2


class Accomplice:
    """One host on the roster that lies. strangers: keys that were never on it. lies: how many it has sent, by kind."""

    def __init__(self, world: SeedfloodWorld, host: SeedfloodHost, operator: Operator) -> None:
        self.lies = {"statements": 0, "bundles": 0, "rosters": 0}
        self.strangers = [world.rng.randbytes(32) for _ in range(3)]
        self._world = world
        self._host = host
        self._operator = operator
        self._rng = world.rng
        world.chronicle.liars.add(host.origin)
        world.network.forgers[host.index] = self._forge

    def begin(self) -> None:
        self._world.clock.after(LIE_SECONDS, self._lie)

    def _lie(self) -> None:
        world, host = self._world, self._host
        for neighbour in world.network.neighbours(host.index):
            if host.is_up and world.network.is_linked(host.index, neighbour):
                for item in (self._statements(), self._bundles(), self._roster()):
                    world.network.send_raw(host, neighbour, item)
        self.begin()

    def _forge(self, answer: Iterable[AnswerItem]) -> Iterable[AnswerItem]:
        yield self._statements()
        yield self._bundles()
        yield from answer

    def _statements(self) -> Members:
        self.lies["statements"] += 1
        members = (Member(key, f"s{k}", 1 + self.lies["statements"]) for k, key in enumerate(self.strangers))
        run_id, sign = self._world.rules.run_id, self._world.notary.signature
        return Members(tuple(replace(m, signature=sign(m.public_key, m.signed_bytes(run_id))) for m in members))

    def _bundles(self) -> Updates:
        self.lies["bundles"] += 1
        return Updates(tuple(self._bundle(key) for key in self.strangers))

    def _bundle(self, key: bytes) -> Bundle:
        rules = self._world.rules
        origin = Member(key, "s", 1).origin
        step = self._rng.randrange(0, rules.steps, rules.local_steps)
        bundle = make_bundle(origin, step, draw_round(rules, origin, step, self._rng))
        return bundle.with_signature(self._world.notary.signature(key, bundle.signed_bytes(rules.run_id, key)))

    def _roster(self) -> Item:
        """An old one, one of another operator that lists the strangers, or one with a made-up signature."""
        self.lies["rosters"] += 1
        operator, strangers = self._operator, [Entry(f"s{k}", key) for k, key in enumerate(self.strangers)]
        larger = Roster(1 << 40, (*operator.roster.entries, *strangers))
        sign = self._world.notary.signer(self.strangers[0])
        forged = (larger.signed(sign, self.strangers[0], NAME), replace(larger, signature=self._rng.randbytes(64)))
        return self._rng.choice((operator.first, operator.first, operator.first, *forged))
