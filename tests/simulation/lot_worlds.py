"""Worlds of hosts that draw lots (`modes/lots`): how they are made, and what is held against them."""

from lots import LOT, NAME_BYTES, LotNode, lots_of

from seedflood.host.driver import Driver
from seedflood.protocol.swarm.messages import Opaque
from seedflood.protocol.swarm.rules import SwarmRules
from simulation.bounds import SWARM_BOUNDS, find_excess
from simulation.checks import find_mistakes
from simulation.faults import Chaos
from simulation.host import Host
from simulation.link import Traffic, join_statements
from simulation.world import World

TRAFFIC = Traffic((Opaque,), join_statements)


def make_process(host):
    node = LotNode(host.rules, host.member, host.sign, host.verify, is_key_fresh=not host.told)
    return node, Driver(node, host.journal, host, host.draw, host, lambda: host.clock.now)


class LotHost(Host):
    """told: the first number that anybody was told of a step, in all its lives."""

    def __init__(self, place, rules):
        super().__init__(place, make_process)
        self.rules, self.told = rules, {}

    def draw(self, step):
        """It takes its time, and comes of the world's chance: another life would draw another number."""
        seconds = self.rng.uniform(self.pace.seconds_min, self.pace.seconds_max)
        driver = self.driver
        self.work.put(seconds, lambda: driver.answered((step, self.rng.random())))

    def send(self, peer, messages):
        super().send(peer, messages)
        for message in messages:
            for origin, step, number in lots_of(message) if isinstance(message, Opaque) else ():
                if origin == self.origin and self.told.setdefault(step, number) != number:
                    self.mistakes.append(f"told two numbers of step {step}")


class LotChaos(Chaos):
    def holds_past_of(self, host, keeper):
        names = [LOT.pack(host.origin, step, 0.0)[:NAME_BYTES] for step in host.told]
        kept = keeper.journal.records()
        return all(name in kept and not keeper.journal.is_open(name) for name in names)


class LotJudge:
    BOUNDS = SWARM_BOUNDS | {
        "Lots.known": lambda node: node._rules.clients * node._rules.steps,
        "Backlog.records": lambda node: node._rules.clients * node._rules.steps,
    }

    def look_at(self, host):
        silent = host.node.phase == "drawing" and not host.node.blockers(host.clock.now)
        return [*find_excess(host.driver, self.BOUNDS), *(["cannot say for whom it waits"] if silent else [])]

    def find_mistakes(self, hosts):
        return find_mistakes(hosts)

    def find_violations(self, hosts):
        violations = find_mistakes(hosts)
        drawn = {(host.origin, step): number for host in hosts for step, number in host.told.items()}
        for host in hosts:
            if host.node.lots.known != drawn:
                violations.append(f"{host.name} knows other numbers than were told")
        return violations


def make_world(clients, edges, *, seed, steps, **settings):
    rules = SwarmRules(b"r" * 32, b"b" * 32, clients, steps)
    return World(clients, edges, lambda place: LotHost(place, rules), seed=seed, traffic=TRAFFIC, **settings)
