"""A full disk, with the real node behind the driver: what waits, what goes on, and what comes of it."""

import pytest
from nodes import PROBES, linked
from origins import A, B, C, make_rules

from seams import Recorder
from seedflood.errors import DiskFullError, JournalError
from seedflood.host import backlog as backlog_module
from seedflood.host.driver import RETRY_SECONDS
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.history import pages
from seedflood.host.seedflood.seams import Refill
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import Equivocation
from seedflood.protocol.seedflood.outputs import Measure, Measured
from seedflood.protocol.swarm.messages import Members


class Host:
    """A node in a run with B and C, and everything around it."""

    def __init__(self, **rules):
        self.node, self.seams, self.now = linked(B, C, **rules), Recorder(), 1.0
        self.driver = SeedfloodDriver(self.node, *self.seams.seams, lambda: self.now)

    def publish(self):
        self.driver.answered(Measured(self.node.step, PROBES))

    def fill(self):
        """The disk is full when our bundle should be written."""
        self.seams.disk.is_full = True
        self.publish()

    def free(self):
        self.seams.disk.is_full = False
        self.driver.tick()

    def said(self):
        """(peer, origin, step) of every bundle that was sent since the last time."""
        return [
            (peer, bundle.origin, bundle.step)
            for _, peer, messages in self.seams.take("send")
            for message in messages
            if isinstance(message, Updates)
            for bundle in message.bundles
        ]


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def full(host):
    host.fill()
    return host


def events(seams):
    return [call[1].name for call in seams.take("noted")]


def held_of_us(hello):
    return next((one.mark for one in hello.frontier if one.origin == A.id), 0)


def test_with_space_a_bundle_of_ours_is_said_and_kept(host):
    host.publish()
    assert host.said() == [(B.id, A.id, 0), (C.id, A.id, 0)]
    assert [bundle.step for bundle in host.seams.disk.kept] == [0]
    assert held_of_us(host.driver.hello()) == 1


def test_what_is_ours_and_not_kept_is_not_said(full):
    assert full.driver.is_disk_full
    assert full.said() == []
    assert full.seams.disk.kept == []


def test_what_is_ours_and_not_kept_is_not_in_our_hello(full):
    assert held_of_us(full.node.hello()) == 1
    assert held_of_us(full.driver.hello()) == 0


def test_steps_that_the_unsaved_bundle_skips_are_not_in_our_hello_either():
    host = Host(window="bounded")
    host.driver.received(B.id, B.updates(*range(8)))
    host.driver.received(C.id, C.updates(*range(8)))
    host.publish()
    assert host.node.step == 7
    host.fill()
    assert host.node.frontier.mark(A.id) == 8
    assert held_of_us(host.driver.hello()) == 1


def test_a_full_disk_is_told_once(full):
    assert events(full.seams).count("disk full") == 1
    full.driver.received(B.id, B.updates(0))
    full.driver.tick()
    assert "disk full" not in events(full.seams)


def test_others_are_relayed_while_the_disk_is_full(full):
    full.seams.take()
    full.driver.received(B.id, B.updates(0))
    assert full.said() == [(C.id, B.id, 0)]
    assert full.seams.disk.kept == []


def test_windows_go_on_closing_and_nothing_is_measured(full):
    full.seams.take()
    full.driver.received(B.id, B.updates(0))
    full.driver.received(C.id, C.updates(0))
    assert full.node.step == 1
    assert [call[0] for call in full.seams.take("apply", "measure")] == ["apply"]


def test_what_was_being_measured_is_published_when_there_is_space(host):
    host.seams.disk.is_full = True
    host.driver.disconnected(C.id, "gone")
    host.now = 3.0
    host.driver.tick()  # we state it: the first thing that must reach the disk
    host.publish()
    assert host.node.frontier.mark(A.id) == 0
    host.free()
    assert host.said() == [(B.id, A.id, 0)]
    assert [bundle.step for bundle in host.seams.disk.kept] == [0]


def test_once_there_is_space_everything_is_kept_then_said_and_the_node_goes_on(full):
    full.driver.received(B.id, B.updates(0))
    full.driver.received(C.id, C.updates(0))
    full.seams.take()
    full.free()
    calls = full.seams.take("append", "send", "measure")
    assert calls[0][0] == "append"
    assert [(bundle.origin, bundle.step) for bundle in calls[0][1]] == [(A.id, 0), (B.id, 0), (C.id, 0)]
    assert calls[0][3] is True
    assert ("send", B.id, (Updates((full.seams.disk.kept[0],)),)) in calls
    assert calls[-1] == ("measure", Measure(1, 1))
    assert not full.driver.is_disk_full
    assert held_of_us(full.driver.hello()) == 1


def test_it_is_tried_again_every_second_and_nothing_happens_until_it_succeeds(full):
    full.seams.take()
    assert full.driver.seconds_to_tick() <= RETRY_SECONDS
    for _ in range(5):
        full.now += RETRY_SECONDS
        full.driver.tick()
    assert full.said() == []
    assert full.driver.is_disk_full
    full.free()
    assert [step for _, _, step in full.said()] == [0, 0]


def test_that_there_is_space_again_is_told(full):
    full.seams.take()
    full.free()
    assert "disk has space again" in events(full.seams)


def test_a_neighbour_that_links_meanwhile_hears_of_us_only_afterwards(full):
    full.driver.disconnected(B.id, "gone")
    full.driver.connected(B.id, B.hello())
    assert (B.id, A.id, 0) not in full.said()
    full.free()
    assert (B.id, A.id, 0) in full.said()


def test_who_leaves_with_a_full_disk_says_so_when_there_is_space_and_is_down_until_then(host):
    def goodbyes():
        sent = [one for _, _, messages in host.seams.take("send") for one in messages if isinstance(one, Members)]
        return [member for one in sent for member in one.members if member.origin == A.id and member.has_left]

    host.driver.disconnected(C.id, "gone")
    host.now = 3.0
    host.driver.tick()  # we state our neighbours, and keep that
    host.fill()
    host.driver.leave()
    assert not goodbyes()
    assert not any(one.origin == A.id and one.has_left for one in next(host.driver.answer(())).members)
    assert not host.driver.hello().member.has_left
    host.free()
    assert goodbyes()


def test_nobody_has_heard_what_a_crash_makes_us_forget(full):
    full.driver.received(B.id, B.updates(0))
    full.driver.tick()
    heard = full.said()
    again = A.node(make_rules(clients=3), bundles=full.seams.disk.kept, incarnation=2)
    assert again.frontier.mark(A.id) == 0
    assert A.id not in {origin for _, origin, _ in heard}


def test_a_rebuild_meanwhile_knows_what_is_not_written(full):
    full.driver.received(B.id, B.updates(0))
    full.driver.received(C.id, C.updates(0))
    full.seams.take()
    full.driver._compute(Refill(iter(()), pages(full.driver._journal, full.driver._backlog, full.node.applied)))
    ((_, closed, updates),) = full.seams.take("rebuild")
    assert (closed, sorted(update.step for update in updates)) == ([], [0, 0, 0])


def test_a_disk_that_is_full_for_too_long_ends_the_node(full, monkeypatch):
    monkeypatch.setattr(backlog_module, "UNSAVED_BUNDLES_MAX", 5)
    full.driver.received(B.id, B.updates(*range(4)))
    full.seams.take()
    with pytest.raises(DiskFullError, match="too long"):
        full.driver.received(C.id, C.updates(0))
    assert full.driver.is_halted
    assert full.seams.calls == []


def test_a_disk_that_breaks_while_it_is_full_ends_the_node(full):
    full.seams.disk.is_full, full.seams.disk.is_broken = False, True
    with pytest.raises(JournalError):
        full.driver.tick()
    assert full.driver.is_halted
    assert full.said() == []


ONE, OTHER = B.bundle(0, scalar=5), B.bundle(0, scalar=6)


def test_a_contradiction_while_the_disk_is_full_ends_nobody_and_is_carried_out_later(host):
    host.driver.received(B.id, Updates((ONE,)))
    host.fill()
    host.driver.received(C.id, Equivocation(ONE, OTHER))
    assert not host.driver.is_halted
    assert not host.driver.node.frontier.holds(B.id, 1)
    host.free()
    assert ONE not in host.seams.disk.kept
    assert host.driver.node.frontier.holds(B.id, 1)


def test_what_was_taken_out_is_not_written_again_when_the_disk_gets_full_afterwards(host):
    host.driver.received(B.id, Updates((ONE,)))
    host.driver.received(C.id, Equivocation(ONE, OTHER))
    host.fill()
    host.free()
    assert {ONE, OTHER}.isdisjoint(host.seams.disk.kept)
