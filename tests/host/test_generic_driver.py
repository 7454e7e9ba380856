"""What the driver of any algorithm promises, with hosts that draw lots: what is not kept is not told."""

import pytest
from lots import LotNode

from seedflood.errors import DiskFullError, JournalError
from seedflood.host.driver import RETRY_SECONDS, Driver
from seedflood.protocol.swarm.messages import Hello, Member, Members, Opaque
from seedflood.protocol.swarm.roster import Roster
from seedflood.protocol.swarm.rules import SwarmRules

RULES = SwarmRules(b"r" * 32, b"b" * 32, clients=2, steps=3)


class Seams:
    """Journal, links and observer that write down what happens to them, in order."""

    def __init__(self):
        self.happened, self.kept, self.draws, self.error = [], [], [], None

    def keep(self, members, records=(), *, durable):
        if self.error is not None:
            raise self.error
        members, records = list(members), list(records)
        self.happened.append(("keep", durable, len(records)))
        self.kept += [*members, *records]

    def commit(self):
        self.happened.append(("commit",))

    def send(self, peer, messages):
        self.happened += [("send", peer, message) for message in messages]

    def noted(self, event):
        self.happened.append(("noted", event.name))

    def sent(self, peer, message): ...

    def finished(self): ...

    def superseded(self): ...

    def drop(self, peer, reason):
        self.happened.append(("drop", peer))

    def removed(self):
        self.happened.append(("removed",))

    def sends(self):
        return [one[2] for one in self.happened if one[0] == "send"]


def make_node(name):
    member = Member(name.encode().ljust(32, b"."), name, 1)
    return LotNode(RULES, member, lambda _: bytes(64), lambda *_: True, is_key_fresh=True)


@pytest.fixture
def seams():
    return Seams()


@pytest.fixture
def driver(seams):
    """Linked with bob, and about to draw."""
    driver = Driver(make_node("ada"), seams, seams, seams.draws.append, seams, lambda: 1.0)
    driver.recall([], {})
    bob = make_node("bob")
    bob.recall([], 1.0)
    driver.connected(bob.origin, bob.hello())
    seams.happened.clear()
    return driver


def test_a_record_is_durable_before_it_is_told(driver, seams):
    driver.answered((seams.draws[0], 0.5))
    kinds = [one[0] for one in seams.happened]
    assert kinds.index("keep") < kinds.index("commit") < kinds.index("send")
    assert next(one for one in seams.happened if one[0] == "keep") == ("keep", True, 1)


def test_a_full_disk_withholds_what_is_ours_and_tells_it_in_order_once_there_is_space(driver, seams):
    seams.error = DiskFullError("full")
    driver.answered((seams.draws[0], 0.5))
    assert driver.is_disk_full
    assert [one for one in seams.sends() if isinstance(one, Opaque | Members)] == []
    seams.error = None
    driver.tick()
    assert not driver.is_disk_full
    assert any(isinstance(one, Opaque) for one in seams.sends())


def test_a_hello_says_nothing_of_ourselves_that_is_not_kept(driver, seams):
    kept = driver.hello().member
    seams.error = DiskFullError("full")
    driver.do(lambda now: driver.node.lots._presence.declare(hop_milliseconds=7))
    assert driver.node.hello().member.version == kept.version + 1
    hello = driver.hello()
    assert isinstance(hello, Hello)
    assert hello.member == kept
    seams.error = None
    driver.tick()
    assert driver.hello().member == driver.node.hello().member != kept


def test_a_disk_that_fails_halts_the_driver_and_nothing_is_told(driver, seams):
    seams.error = JournalError("broken")
    with pytest.raises(JournalError):
        driver.answered((seams.draws[0], 0.5))
    assert driver.is_halted
    assert seams.sends() == []
    driver.tick()
    assert seams.sends() == []


def test_a_roster_for_which_there_is_no_space_counts_and_is_kept_as_soon_as_there_is(driver):
    kept, answers = [], [False, False, True]

    def keep(roster):
        kept.append(roster)
        return answers[len(kept) - 1]

    driver.keep_roster = keep
    roster = Roster(1, ())
    driver.do(lambda _: setattr(driver.node._outbox.outputs, "roster", roster))
    assert driver.seconds_to_tick() <= RETRY_SECONDS
    for _ in range(4):
        driver.tick()
    assert kept == [roster, roster, roster]
