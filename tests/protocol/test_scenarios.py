"""Conversations of one node as text: what happens to it, and what it wants done, in the order of the contract.

A line that begins with ">" happens to ada; what is indented below is all that she then wants done: kept, sent, asked
for, ordered of her model. Other lines are for the reader. To write the answers anew after a change, and look at what
differs (`git diff`):

    PYTHONPATH=node:tests/protocol .venv/bin/python tests/protocol/test_scenarios.py
"""

import re
from pathlib import Path

import pytest
from origins import A, B, C, certified, epoch, make_rules, replica, standing

from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.contents import Contents
from seedflood.protocol.seedflood.messages import BlockDigests, Equivocation, FrontierDigest, ReplicaDigest, Votes
from seedflood.protocol.seedflood.outputs import (
    ClosedWindow,
    Measure,
    Measured,
    Pulled,
    Rebuild,
    Remade,
    SumEpoch,
    TakeDigest,
)
from seedflood.protocol.swarm.messages import Members, Ping, Pong
from seedflood.protocol.swarm.rules import Patience

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
ORIGINS = {origin.name: origin for origin in (A, B, C)}
NAMES = {origin.id: origin.name for origin in ORIGINS.values()}
PATIENCE = Patience(repair_seconds=2.0, start_seconds=60.0, linger_seconds=60.0)


class Ada:
    """The node, its disk, and the clock."""

    def __init__(self, **rules):
        self.rules = make_rules(**rules)
        self.now, self.lives = 0.0, 0
        self.journal, self.members = [], {}
        self.sums = [epoch(0, B.held(self.rules.refresh_period), C.held(self.rules.refresh_period), total=5)]
        """Of all epochs that are closed anywhere; the first was before ada came."""
        self.start()

    def start(self, *, is_key_fresh=True):
        self.lives += 1
        self.asked = []
        self.node = A.node(
            self.rules,
            bundles=self.journal,
            members=self.members.values(),
            incarnation=self.lives,
            patience=PATIENCE,
            now=self.now,
            is_key_fresh=is_key_fresh,
        )

    def happens(self, line):
        """Carries out a line, and tells what she wants done."""
        for pattern, action in EVENTS:
            if found := pattern.fullmatch(line):
                action(self, *found.groups())
                return self.honour()
        raise AssertionError(f"nobody knows what that is: {line}")

    def hears(self, name, message):
        """One of her neighbours says something."""
        self.node.received(ORIGINS[name].id, message, self.now)

    def honour(self):
        out = self.node.collect()
        self.journal += out.bundles
        self.members.update((member.origin, member) for member in out.members)
        self.asked += [order.frontier_digest for order in out.orders if isinstance(order, TakeDigest)]
        self.sums += [epoch(order.epoch, *order.frontier) for order in out.orders if isinstance(order, SumEpoch)]
        yield from (f"keep the sum of epoch {closed.epoch}: {say_frontier(closed.frontier)}" for closed in out.adopt)
        kept = [*tell_all(out.bundles), *(f"statement of {member.name}" for member in out.members)]
        kept += ["votes of ada" if record.key == b"votes" else "proof" for record in out.records]
        if kept:
            yield f"keep {', '.join(kept)}{', on the disk' if out.is_durable else ''}"
        for peer, message in out.send:
            yield f"send {NAMES[peer]}: {say(message)}"
        for peer, held in out.pull:
            yield f"ask {NAMES[peer]} for what is lacking beside {say_frontier(held)}"
        for order in out.orders:
            yield say_order(order)
        yield from (f"drop the bundles of epoch {closed.epoch}: its sum stands for them" for closed in out.compact)
        gone = [(NAMES[origin], first, last) for _, spans in out.cut for origin, first, last in spans]
        yield from (f"delete what {name} said of steps {first} to {last}" for name, first, last in gone)
        yield from (f"log: {event.name}" for event in out.events if event.level != "debug")
        if out.is_finished:
            yield "the run is over"


EVENTS = []
"""What a line can be: a pattern, and what happens then. The groups of the pattern are its arguments."""


def when(pattern):
    def note(action):
        EVENTS.append((re.compile(pattern), action))
        return action

    return note


@when("ada starts again")
def starts_again(ada):
    ada.start()


@when("ada loses her disk")
def loses_disk(ada):
    ada.remembered = ada.members[A.id]
    ada.journal.clear()
    ada.members.clear()
    ada.start(is_key_fresh=False)


@when("ada has measured")
def has_measured(ada):
    ada.node.answer(Measured(ada.node.step, [(1, 2)] * ada.rules.local_steps), ada.now)


@when("ada has taken the digest(?: of a (wrong) replica)?")
def has_taken_digest(ada, wrong):
    taken = replica(digest=wrong or "same")
    ada.node.answer(ReplicaDigest(ada.asked.pop(), taken.replica_digest), ada.now)


@when("ada has rebuilt her replica, which was wrong")
def has_rebuilt(ada):
    ada.node.answer(Remade(True), ada.now)


@when(r"ada has summed epoch (\d+)")
def has_summed(ada, number):
    assert ada.sums[-1].epoch == int(number)
    ada.node.answer(ada.sums[-1], ada.now)


@when(r"([\d.]+) seconds pass")
def time_passes(ada, seconds):
    ada.now += float(seconds)
    ada.node.tick(ada.now)


@when(r"(\w+) is linked")
def is_linked(ada, name):
    ada.node.connected(ORIGINS[name].id, ORIGINS[name].hello(), ada.now)


@when(r"(\w+) is linked, and remembers ada")
def is_linked_and_remembers(ada, name):
    hello = ORIGINS[name].hello([A.held(1)], [ada.remembered])
    ada.node.connected(ORIGINS[name].id, hello, ada.now)


@when(r"(\w+) is linked, and holds (\d+) steps of bob and of cyd")
def is_linked_far_ahead(ada, name, steps):
    peer = ORIGINS[name]
    members = [other.member() for other in (B, C) if other is not peer]
    ada.node.connected(peer.id, peer.hello([B.held(int(steps)), C.held(int(steps))], members), ada.now)


@when(r"(\w+) is gone")
def is_gone(ada, name):
    ada.node.disconnected(ORIGINS[name].id, ada.now)


@when(r"(\w+) has answered")
def has_answered(ada, name):
    ada.node.answer(Pulled(ORIGINS[name].id), ada.now)


@when(r"(\w+) says goodbye after step 0")
def says_goodbye(ada, name):
    ada.hears(name, Members((ORIGINS[name].member(version=1, last_step=0),)))


@when(r"(\w+) tells (ada|bob|cyd) (\d+)(?: to (\d+))?")
def tells_updates(ada, name, origin, first, last):
    ada.hears(name, ORIGINS[origin].updates(*range(int(first), int(last or first) + 1)))


@when(r"(\w+) proves that (\w+) said two things of step (\d+)")
def proves(ada, name, origin, step):
    ada.hears(name, Equivocation(*(ORIGINS[origin].bundle(int(step), scalar=scalar) for scalar in (7, 8))))


@when(r"(\w+) agrees")
def agrees(ada, name):
    held, members = ada.node.frontier, ada.node.membership
    ada.hears(name, FrontierDigest(held.digest(), is_complete=True, members_digest=members.digest()))
    tells_digest(ada, name)


@when(r"(\w+) has another frontier")
def has_another_frontier(ada, name):
    ada.hears(name, FrontierDigest(bytes(32), members_digest=ada.node.membership.digest()))


@when(r"(\w+) tells the digest of his replica")
def tells_digest(ada, name):
    ada.hears(name, replica(*ada.node.applied.held()))


@when(r"(\w+) has the same bundles")
def has_same_bundles(ada, name):
    contents = Contents(ada.rules)
    contents.note(ada.journal)
    ada.hears(name, contents.digests())


@when(r"(\w+) tells the sum of epoch 0")
def tells_sum(ada, name):
    ada.hears(name, certified(ada.sums[0], B, C))


@when(r"(\w+) has applied (\d+) steps of bob and of cyd")
def has_applied(ada, name, steps):
    ada.hears(name, standing(B.held(int(steps)), C.held(int(steps))))


@when(r"(\w+)(?: passes on that (\w+))? votes for the same sum")
def votes(ada, name, author):
    ada.hears(name, Votes((ORIGINS[author or name].vote(ada.sums[-1]),)))


def tell(bundle):
    skipped = f", which skips {bundle.skipped}" if bundle.skipped else ""
    return f"{NAMES[bundle.origin]} {bundle.step}{skipped}"


def tell_all(bundles):
    """Bundles of one origin that follow each other are one item."""
    told, ends = [], {}
    for bundle in bundles:
        if told and not bundle.skipped and ends == {bundle.origin: bundle.step}:
            told[-1] = f"{told[-1].split(' to ')[0]} to {bundle.last}"
        else:
            told.append(tell(bundle))
        ends = {bundle.origin: bundle.last + 1}
    return told


def say(message):
    match message:
        case Updates(bundles):
            return ", ".join(tell_all(bundles))
        case Members(members):
            return f"statement of {', '.join(member.name for member in members)}"
        case Votes(votes):
            return f"votes of {', '.join(NAMES[vote.origin] for vote in votes)}"
        case FrontierDigest():
            before = "" if message.before > 10**6 else f" below step {message.before}"
            return f"digest of what is held{before}{', complete' if message.is_complete else ''}"
        case ReplicaDigest():
            return "digest of the replica"
        case BlockDigests(blocks):
            return ", ".join(f"digest of {count} bundles of {NAMES[origin]}" for origin, _, _, count, _ in blocks)
        case Equivocation(one):
            return f"proof: two things under {tell(one)}"
        case Ping():
            return "ping"
        case Pong():
            return "pong"
    return type(message).__name__


def say_frontier(held):
    marks = [f"{NAMES[one.origin]} below {one.mark}" for one in held if one.mark]
    beyond = [f"{NAMES[one.origin]} {first} to {last}" for one in held for first, last in one.beyond]
    return ", ".join(marks + beyond) or "nothing"


def say_order(order):
    match order:
        case Measure(step, _):
            return f"measure step {step}"
        case ClosedWindow(updates=updates, reason=reason, late=late):
            told = ", ".join(f"{NAMES[update.origin]} {update.step}" for update in updates) or "nothing"
            if len(updates) > 4:
                steps = {update.step for update in updates}
                told = f"{len(updates)} updates of steps {min(steps)} to {max(steps)}"
            return f"apply {told} ({reason}{f', {late} late' if late else ''})"
        case TakeDigest():
            return "take the digest of the replica"
        case SumEpoch(number, frontier):
            return f"sum epoch {number}: {say_frontier(frontier)}"
        case Rebuild():
            return "rebuild the replica from the journal"
    return type(order).__name__


def play(text):
    """The text, with what she wants done below each line that happens."""
    lines, ada = [], None
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        pattern = r"> ada is in a run of (\d+), (\w+) windows, (\d+) steps(?:, epochs of (\d+))?"
        if found := re.fullmatch(pattern, line):
            ada = Ada(clients=int(found[1]), window=found[2], steps=int(found[3]), refresh_period=int(found[4] or 1000))
            lines += [f"    {one}" for one in ada.honour()]
        elif line.startswith("> "):
            lines += [f"    {one}" for one in ada.happens(line[2:])]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_it_is_written(path):
    assert play(path.read_text()) == path.read_text()


def test_every_scenario_says_what_it_teaches():
    assert SCENARIOS
    assert [path.name for path in SCENARIOS if not re.match(r"[A-Z][^>]+\.\n", path.read_text())] == []


if __name__ == "__main__":
    for scenario in SCENARIOS:
        scenario.write_text(play(scenario.read_text()))
