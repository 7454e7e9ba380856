"""Conversations of one node as text: what happens to it, and what it wants done, in the order of the contract.

A line that begins with ">" happens to ada; what is indented below is all that she then wants done: kept, sent, asked
for, ordered of her model. Other lines are for the reader. To write the answers anew after a change, and look at what
differs (`git diff`):

    PYTHONPATH=node:tests/protocol .venv/bin/python tests/protocol/test_scenarios.py
"""

import re
from pathlib import Path

import pytest
from origins import A, B, C, closed_digests, epoch, has_closed, make_rules, replica, standing

from seedflood.protocol.seedflood.inquiry import Contents
from seedflood.protocol.seedflood.messages import BlockDigests, Equivocation, FrontierDigest, ReplicaDigest, Updates
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure, Rebuild, SumEpoch, TakeDigest
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
        words = line.split()
        match words:
            case ["ada", "starts", "again"]:
                self.start()
            case ["ada", "has", "measured"]:
                self.node.published(self.node.step, [(1, 2)] * self.rules.local_steps, self.now)
            case ["ada", "has", "taken", "the", "digest"]:
                self.node.digested(self.asked.pop(), replica().replica_digest, self.now)
            case ["ada", "has", "taken", "the", "digest", "of", "a", "wrong", "replica"]:
                self.node.digested(self.asked.pop(), replica(digest="wrong").replica_digest, self.now)
            case ["ada", "has", "rebuilt", "her", "replica,", "which", "was", "wrong"]:
                self.node.rebuilt(True, self.now)
            case ["ada", "has", "summed", "epoch", number]:
                assert self.sums[-1].epoch == int(number)
                self.node.summed(self.sums[-1], self.now)
            case ["ada", "loses", "her", "disk"]:
                self.remembered = self.members[A.id]
                self.journal.clear()
                self.members.clear()
                self.start(is_key_fresh=False)
            case [seconds, "seconds", "pass"]:
                self.now += float(seconds)
                self.node.tick(self.now)
            case [name, *rest]:
                self.peer(ORIGINS[name], " ".join(rest))
        return self.honour()

    def peer(self, peer, event):
        if event == "is linked":
            self.node.connected(peer.id, peer.hello(), self.now)
        elif event == "is linked, and remembers ada":
            hello = peer.hello([A.held(1)], [self.remembered])
            self.node.connected(peer.id, hello, self.now)
        elif found := re.fullmatch(r"is linked, holds (\d+) steps of bob and of cyd, and has closed epoch 0", event):
            closed = has_closed(*self.sums, period=self.rules.refresh_period)
            members = [other.member(**closed) for other in (B, C) if other is not peer]
            held = [other.held(int(found[1])) for other in (B, C)]
            self.node.connected(peer.id, peer.hello(held, members, **closed), self.now)
        elif event == "tells the digests of his sums":
            self.node.received(peer.id, closed_digests(*self.sums), self.now)
        elif event == "tells the sum of epoch 0":
            self.node.received(peer.id, self.sums[0], self.now)
        elif found := re.fullmatch(r"has applied (\d+) steps of bob and of cyd", event):
            self.node.received(peer.id, standing(*(other.held(int(found[1])) for other in (B, C))), self.now)
        elif found := re.fullmatch(r"(?:states|passes on that (\w+) states) the same sums", event):
            closed = has_closed(*self.sums, period=self.rules.refresh_period)
            said = ORIGINS[found[1] or peer.name].member(version=1, **closed)
            self.node.received(peer.id, Members((said,)), self.now)
        elif event == "is gone":
            self.node.disconnected(peer.id, self.now)
        elif event == "has answered":
            self.node.pulled(peer.id, self.now)
        elif event == "says goodbye after step 0":
            self.node.received(peer.id, Members((peer.member(version=1, last_step=0),)), self.now)
        elif found := re.fullmatch(r"tells (\w+) (\d+)(?: to (\d+))?", event):
            steps = range(int(found[2]), int(found[3] or found[2]) + 1)
            self.node.received(peer.id, ORIGINS[found[1]].updates(*steps), self.now)
        elif found := re.fullmatch(r"proves that (\w+) said two things of step (\d+)", event):
            two = [ORIGINS[found[1]].bundle(int(found[2]), scalar=scalar) for scalar in (7, 8)]
            self.node.received(peer.id, Equivocation(*two), self.now)
        elif event == "agrees":
            held = self.node.frontier
            said = FrontierDigest(held.digest(), is_complete=True, members_digest=self.node.membership.digest())
            self.node.received(peer.id, said, self.now)
            self.node.received(peer.id, replica(*self.node.applied.held()), self.now)
        elif event == "tells the digest of his replica":
            self.node.received(peer.id, replica(*self.node.applied.held()), self.now)
        elif event == "has the same bundles":
            contents = Contents(self.rules)
            contents.note(self.journal)
            self.node.received(peer.id, contents.told(), self.now)
        elif event == "has another frontier":
            said = FrontierDigest(bytes(32), members_digest=self.node.membership.digest())
            self.node.received(peer.id, said, self.now)
        else:
            raise AssertionError(f"nobody knows what that is: {peer.name} {event}")

    def honour(self):
        out = self.node.collect()
        self.journal += out.bundles
        self.members.update((member.origin, member) for member in out.members)
        self.asked += [order.frontier_digest for order in out.orders if isinstance(order, TakeDigest)]
        self.sums += [epoch(order.epoch, *order.frontier) for order in out.orders if isinstance(order, SumEpoch)]
        yield from (f"keep the sum of epoch {closed.epoch}: {say_frontier(closed.frontier)}" for closed in out.adopt)
        kept = [*tell_all(out.bundles), *(f"statement of {member.name}" for member in out.members)]
        if kept:
            yield f"keep {', '.join(kept)}{', on the disk' if out.is_durable else ''}"
        for peer, message in out.send:
            yield f"send {NAMES[peer]}: {say(message)}"
        for peer, held in out.pull:
            yield f"ask {NAMES[peer]} for what is lacking beside {say_frontier(held)}"
        for order in out.orders:
            yield say_order(order)
        yield from (f"drop the bundles of epoch {closed.epoch}: its sum stands for them" for closed in out.compact)
        yield from (f"settle on the {tell(proof.kept)} that stands" for proof in out.settle)
        yield from (f"log: {event.name}" for event in out.events if event.level != "debug")
        if out.is_finished:
            yield "the run is over"


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
        case FrontierDigest():
            before = "" if message.before > 10**6 else f" below step {message.before}"
            return f"digest of what is held{before}{', complete' if message.is_complete else ''}"
        case ReplicaDigest():
            return "digest of the replica"
        case BlockDigests(blocks):
            return ", ".join(f"digest of {count} bundles of {NAMES[origin]}" for origin, _, _, count, _ in blocks)
        case Equivocation(kept):
            return f"proof: two things under {tell(kept)}"
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
