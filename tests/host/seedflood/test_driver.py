from types import SimpleNamespace

import pytest

from seams import Disk, Recorder
from seedflood.errors import DiskFullError, JournalError, PeerError
from seedflood.host.backlog import GROUP_BUNDLES_MAX
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.host.seedflood.history import PAGE_BUNDLES, pages
from seedflood.protocol.frontier import Frontier, Held
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch, FrontierDigest, ReplicaDigest
from seedflood.protocol.seedflood.opening import WAITING_ROUNDS, joined
from seedflood.protocol.seedflood.outputs import (
    ClosedWindow,
    Compacted,
    Measure,
    Measured,
    Outputs,
    Pulled,
    Rebuild,
    SumEpoch,
    TakeDigest,
)
from seedflood.protocol.seedflood.rules import Rules
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Event

PERIOD = 4
PEER = 7
BUNDLE = make_bundle(1, 0, ((1, 2),))
MEMBER = Member(b"k" * 32, "ada", 1)
MESSAGE = FrontierDigest(b"d" * 32)
WINDOW = ClosedWindow((0, 0), tuple(BUNDLE.updates()), 0, 1, (), "all received", 0.0)
EPOCH = ClosedEpoch(0, (Held(1, 4),), b"packed")
EVERYTHING = {
    "adopt": [EPOCH],
    "bundles": [BUNDLE],
    "members": [MEMBER],
    "is_durable": True,
    "send": [(PEER, MESSAGE)],
    "pull": [(PEER, ())],
    "orders": [TakeDigest(b"f" * 32), WINDOW, SumEpoch(0, ()), Rebuild(()), Measure(1, 1)],
    "compact": [EPOCH],
    "is_finished": True,
    "events": [Event("link up")],
}
COMPACTED = ("answer", Compacted(EPOCH), 10.0)
PERSISTED = ["keep epoch", "append", "commit"]
TOLD = ["adopted", "learned"]
SENT = ["send", "sent", "pull"]
WRITTEN = ["append", "commit"]
ORDERED = ["digest", "apply", "applied", "sum_epoch", "rebuild", "measure"]
IN_ORDER = [*PERSISTED, *TOLD, *SENT, "adopt", "compact", "noted", "seal", *ORDERED, "noted", "finished"]


class ScriptedNode:
    """Notes how it was called and hands out one prepared output."""

    origin = 1
    rules = Rules(b"r" * 32, b"b" * 32, clients=2, steps=1000, window="bounded", refresh_period=PERIOD)

    def __init__(self, **outputs):
        self.outputs = Outputs(**outputs)
        self.calls = []
        self.error = None
        self.ends = SimpleNamespace(proofs={})
        self.access = SimpleNamespace(is_untimely=False)
        self.contents = SimpleNamespace(note=self.note_contents)
        self.seedflood = SimpleNamespace(note_disk=self.note_disk)

    def collect(self):
        out, self.outputs = self.outputs, Outputs()
        return out

    def next_tick(self, now):
        return 12.0

    def start(self, bundles, members, now, *, records, closed, settled, is_journal_damaged, is_key_fresh):
        self.calls.append(
            ("start", list(bundles), members, now, records, list(closed), settled, is_journal_damaged, is_key_fresh)
        )

    def __getattr__(self, name):
        def called(*args, **facts):
            self.calls.append((name, *args, *facts.values()))
            if self.error:
                raise self.error

        return called


def make_driver(now=10.0, **outputs):
    node, seams = ScriptedNode(**outputs), Recorder()
    return SeedfloodDriver(node, *seams.seams, lambda: now), node, seams


CALLS = [
    ("connected", (PEER, "hello"), ("connected", PEER, "hello", 10.0)),
    ("disconnected", (PEER, "gone"), ("disconnected", PEER, 10.0, "gone")),
    ("received", (PEER, MESSAGE), ("received", PEER, MESSAGE, 10.0)),
    ("pulled", (PEER,), ("answer", Pulled(PEER), 10.0)),
    ("answered", (Measured(3, [(1, 2)]),), ("answer", Measured(3, [(1, 2)]), 10.0)),
    ("leave", (), ("leave", 10.0)),
    ("tick", (), ("tick", 10.0)),
]


@pytest.mark.parametrize(("name", "args", "expected"), CALLS)
def test_whatever_happened_is_told_to_the_node_with_the_time_and_its_outputs_are_honoured(name, args, expected):
    driver, node, seams = make_driver(**EVERYTHING)
    getattr(driver, name)(*args)
    assert node.calls == [expected, COMPACTED]
    assert seams.names == IN_ORDER


def test_an_answer_of_the_model_is_given_with_the_time_and_its_outputs_are_honoured():
    driver, node, seams = make_driver(**EVERYTHING)
    driver.answered(ReplicaDigest(b"f", b"r"))
    assert node.calls == [("answer", ReplicaDigest(b"f", b"r"), 10.0), COMPACTED]
    assert seams.names == IN_ORDER


@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_node_starts_with_what_the_journal_holds(is_damaged, is_fresh):
    driver, node, seams = make_driver(**EVERYTHING)
    closed = ClosedEpoch(0, (Held(2, 4),), b"packed")
    seams.disk.kept, seams.disk.closed = [BUNDLE], [closed]
    driver.start([MEMBER], is_journal_damaged=is_damaged, is_key_fresh=is_fresh)
    started = ("start", [BUNDLE], [MEMBER], 10.0, {b"votes": b"ours"}, [closed], {}, is_damaged, is_fresh)
    assert node.calls == [started, COMPACTED]
    assert seams.names == IN_ORDER


def test_all_but_the_last_rounds_of_a_journal_are_read_for_the_model_before_anything_is_ordered():
    driver, node, seams = make_driver(**EVERYTHING)
    bundles = [make_bundle(1, step, ((1, step),)) for step in range(100)]
    seams.disk.kept = list(bundles)
    driver.start([MEMBER])
    ((_, waiting, _, _, _, _, settled, _, _),) = [call for call in node.calls if call[0] == "start"]
    early = bundles[: 100 - WAITING_ROUNDS]
    assert waiting == bundles[len(early) :]
    assert joined(settled.values()) == Frontier([Held(1, len(early))])
    assert seams.calls[0] == ("replay", [update for bundle in early for update in bundle.updates()])
    assert seams.names[1:] == IN_ORDER


def test_a_bundle_that_was_undone_and_written_again_while_it_was_read_is_told_once():
    journal, waiting = Disk([]), []
    journal.kept = [make_bundle(1, step, ((1, step),)) for step in range(2 * PAGE_BUNDLES)]
    told = pages(journal, SimpleNamespace(unwritten=waiting), Frontier([Held(1, STEP_MAX)]))
    first = next(told)
    journal.kept += journal.kept[:10]
    waiting += [*journal.kept[5:20], make_bundle(1, 2 * PAGE_BUNDLES, ((7, 7),))]
    steps = [update.step for page in (first, *told) for update in page]
    assert steps == list(range(2 * PAGE_BUNDLES + 1))


def test_a_node_that_a_newer_one_has_superseded_says_and_does_nothing_more():
    driver, _, seams = make_driver(**EVERYTHING, is_superseded=True)
    driver.tick()
    driver.tick()
    assert seams.names == ["superseded"]
    assert driver.is_halted


def test_persist_comes_before_send_before_apply():
    driver, _, seams = make_driver(**EVERYTHING)
    driver.tick()
    assert seams.calls[:9] == [
        ("keep epoch", EPOCH),
        ("append", [BUNDLE], [MEMBER], True),
        ("commit",),
        ("adopted", EPOCH, None),
        ("learned", [BUNDLE], None),
        ("send", PEER, (MESSAGE,)),
        ("sent", PEER, MESSAGE),
        ("pull", PEER, ()),
        ("adopt", EPOCH, []),
    ]


def test_the_model_gets_its_orders_in_the_order_of_the_node():
    orders = [Measure(1, 1), TakeDigest(b"a" * 32), WINDOW, TakeDigest(b"b" * 32)]
    driver, _, seams = make_driver(orders=orders)
    driver.tick()
    given = [call[1] for call in seams.take("measure", "digest", "apply")]
    assert given == orders


def test_the_model_gets_with_an_epoch_what_the_epoch_does_not_cover():
    other = make_bundle(2, 0, ((1, 2),))
    driver, _, seams = make_driver(adopt=[EPOCH])
    seams.disk.kept = [BUNDLE, other]
    driver.tick()
    assert seams.calls[-1] == ("adopt", EPOCH, [other])


def test_the_model_gets_with_an_epoch_what_waits_for_a_full_disk_and_the_epoch_does_not_cover():
    """The disk has space again when the sum comes, but the bundles were not written yet."""
    other, later = make_bundle(2, 0, ((1, 2),)), make_bundle(2, PERIOD, ((1, 2),))
    driver, node, seams = make_driver(bundles=[BUNDLE, other, later], is_durable=True)
    seams.disk.is_full = True
    driver.tick()
    seams.disk.is_full, node.outputs = False, Outputs(adopt=[EPOCH])
    driver.received(PEER, MESSAGE)
    assert seams.take("adopt") == [("adopt", EPOCH, [other])]


def test_the_observer_is_told_from_whom_news_came():
    driver, _, seams = make_driver(adopt=[EPOCH], bundles=[BUNDLE])
    driver.received(PEER, MESSAGE)
    assert seams.take("adopted", "learned") == [("adopted", EPOCH, PEER), ("learned", [BUNDLE], PEER)]


def test_a_rebuild_has_all_that_counts_as_applied_from_the_disk():
    waiting = make_bundle(1, 1, ((3, 4),))
    driver, _, seams = make_driver(orders=[Rebuild((Held(1, 1),))])
    seams.disk.kept, seams.disk.closed = [BUNDLE, waiting], [EPOCH]
    driver.tick()
    assert seams.calls == [("rebuild", [EPOCH], BUNDLE.updates())]


# What ends a group of the journal


def test_what_others_say_gathers_in_one_group():
    driver, _, seams = make_driver(bundles=[BUNDLE], members=[MEMBER])
    driver.tick()
    assert seams.take(*WRITTEN) == [("append", [BUNDLE], [MEMBER], False)]


def test_a_group_ends_when_a_window_closes():
    driver, _, seams = make_driver(orders=[WINDOW])
    driver.tick()
    assert seams.names == ["commit", "apply", "applied"]


def test_what_is_ours_ends_the_group_and_reaches_the_disk():
    driver, _, seams = make_driver(members=[MEMBER], is_durable=True)
    driver.tick()
    assert seams.take(*WRITTEN) == [("append", [], [MEMBER], True), ("commit",)]


def test_a_large_group_ends_with_the_next_that_comes():
    bundles = [make_bundle(2, step, ((1, 2),)) for step in range(GROUP_BUNDLES_MAX)]
    driver, node, seams = make_driver()
    for part in (bundles[:-1], bundles[-1:], [BUNDLE]):
        node.outputs = Outputs(bundles=part)
        driver.tick()
    assert [call[0] for call in seams.take(*WRITTEN)] == ["append", "append", "append", "commit"]


def test_without_news_the_journal_is_left_alone():
    driver, _, seams = make_driver(send=[(PEER, MESSAGE)])
    driver.tick()
    assert seams.take(*WRITTEN) == []


# Faults


def test_a_journal_error_sends_and_applies_nothing():
    driver, _, seams = make_driver(**EVERYTHING)
    seams.disk.is_broken = True
    with pytest.raises(JournalError):
        driver.tick()
    assert seams.calls == []


def test_a_host_at_fault_falls_silent():
    driver, node, seams = make_driver(**EVERYTHING)
    seams.disk.is_broken = True
    with pytest.raises(JournalError):
        driver.tick()
    seams.disk.is_broken, node.outputs = False, Outputs(**EVERYTHING)
    driver.tick()
    driver.leave()
    assert driver.is_halted
    assert seams.calls == []
    assert node.calls == [("tick", 10.0)]


def test_an_epoch_that_there_is_no_space_for_is_a_fault_because_it_counts_as_held():
    driver, _, seams = make_driver(adopt=[EPOCH])
    seams.disk.is_full = True
    with pytest.raises(DiskFullError):
        driver.tick()
    assert driver.is_halted


@pytest.mark.parametrize("is_known", [False, True])
def test_a_node_does_not_take_bundles_for_compacted_for_which_the_disk_had_no_space(is_known):
    """is_known: an earlier write has failed already."""
    driver, node, seams = make_driver(**({"bundles": [BUNDLE], "is_durable": True} if is_known else {}))
    seams.disk.is_full = is_known
    driver.tick()
    seams.disk.is_full, node.outputs = True, Outputs(compact=[EPOCH])
    driver.tick()
    assert not driver.is_halted
    assert driver.is_disk_full
    assert COMPACTED not in node.calls
    assert "compact" not in seams.names


def test_a_compaction_tells_how_much_it_saved():
    driver, _, seams = make_driver(compact=[EPOCH])
    driver.tick()
    noted = ("noted", Event("journal compacted", facts={"epoch": 0, "bundles": 3}))
    assert seams.calls[-2:] == [noted, ("seal", 0)]


def test_a_peer_error_rises_and_what_the_node_decided_is_still_honoured():
    driver, node, seams = make_driver(**EVERYTHING)
    node.error = PeerError("no", reason="signature")
    with pytest.raises(PeerError):
        driver.received(PEER, MESSAGE)
    assert seams.names == IN_ORDER
    assert not driver.is_halted


def test_messages_are_sent_in_the_order_of_the_node():
    messages = [FrontierDigest(bytes([k]) * 32) for k in range(3)]
    driver, _, seams = make_driver(send=[(peer, message) for message in messages for peer in (1, 2)])
    driver.tick()
    assert seams.take("send") == [("send", peer, (message,)) for message in messages for peer in (1, 2)]


@pytest.mark.parametrize(("now", "seconds"), [(10.0, 2.0), (12.0, 0.0), (13.0, 0.0)])
def test_the_shell_is_told_how_long_it_may_wait(now, seconds):
    driver, _, _ = make_driver(now=now)
    assert driver.seconds_to_tick() == seconds
