import pytest

from seedflood.driver import Driver
from seedflood.errors import JournalError, PeerError
from seedflood.protocol.messages import Bundle, FrontierDigest, Member
from seedflood.protocol.outputs import ClosedWindow, Event, Measure, Outputs

PEER = 7
BUNDLE = Bundle(1, 0, ((1, 2),))
MEMBER = Member(b"k" * 32, "ada", 1)
MESSAGE = FrontierDigest(b"d" * 32)
WINDOW = ClosedWindow((0, 0), tuple(BUNDLE.updates()), 0, 1, (), "all heard", 0.0)
EVERYTHING = {
    "bundles": [BUNDLE],
    "members": [MEMBER],
    "is_durable": True,
    "send": [(PEER, MESSAGE)],
    "pull": [(PEER, ())],
    "apply": [WINDOW],
    "measure": Measure(1, 1),
    "is_finished": True,
    "events": [Event("link up")],
}
IN_ORDER = ["append", "send", "pull", "apply", "applied", "measure", "noted", "finished"]


class Recorder:
    """All four seams at once: what was asked of them, in order."""

    def __init__(self):
        self.calls = []
        self.is_disk_full = False

    def append(self, bundles, members, *, durable):
        if self.is_disk_full:
            raise JournalError("the disk is full; free some space and restart.")
        self.calls.append(("append", list(bundles), list(members), durable))

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))

    @property
    def names(self):
        return [call[0] for call in self.calls]


class ScriptedNode:
    """Notes how it was called and hands out one prepared output."""

    def __init__(self, **outputs):
        self.outputs = Outputs(**outputs)
        self.calls = []
        self.error = None

    def collect(self):
        out, self.outputs = self.outputs, Outputs()
        return out

    def next_tick(self, now):
        return 12.0

    def __getattr__(self, name):
        def called(*args):
            self.calls.append((name, *args))
            if self.error:
                raise self.error

        return called


def make_driver(now=10.0, **outputs):
    node, seams = ScriptedNode(**outputs), Recorder()
    return Driver(node, seams, seams, seams, seams, lambda: now), node, seams


CALLS = [
    ("start", ([BUNDLE], [MEMBER]), ("start", [BUNDLE], [MEMBER], 10.0)),
    ("connected", (PEER, "hello"), ("connected", PEER, "hello", 10.0)),
    ("disconnected", (PEER, "gone"), ("disconnected", PEER, 10.0, "gone")),
    ("received", (PEER, MESSAGE), ("received", PEER, MESSAGE, 10.0)),
    ("pulled", (PEER,), ("pulled", PEER, 10.0)),
    ("published", (3, [(1, 2)]), ("published", 3, [(1, 2)], 10.0)),
    ("leave", (), ("leave", 10.0)),
    ("tick", (), ("tick", 10.0)),
]


@pytest.mark.parametrize(("name", "args", "expected"), CALLS)
def test_whatever_happened_is_told_to_the_node_with_the_time_and_its_outputs_are_honoured(name, args, expected):
    driver, node, seams = make_driver(**EVERYTHING)
    getattr(driver, name)(*args)
    assert node.calls == [expected]
    assert seams.names == IN_ORDER


def test_persist_comes_before_send_before_apply():
    driver, _, seams = make_driver(**EVERYTHING)
    driver.tick()
    assert seams.calls[:4] == [
        ("append", [BUNDLE], [MEMBER], True),
        ("send", PEER, (MESSAGE,)),
        ("pull", PEER, ()),
        ("apply", WINDOW),
    ]


@pytest.mark.parametrize("is_durable", [True, False])
def test_the_journal_is_told_whether_it_must_reach_the_disk(is_durable):
    driver, _, seams = make_driver(bundles=[BUNDLE], is_durable=is_durable)
    driver.tick()
    assert seams.calls == [("append", [BUNDLE], [], is_durable)]


def test_a_statement_alone_is_persisted_too():
    driver, _, seams = make_driver(members=[MEMBER], is_durable=True)
    driver.tick()
    assert seams.calls == [("append", [], [MEMBER], True)]


def test_without_news_the_journal_is_left_alone():
    driver, _, seams = make_driver(send=[(PEER, MESSAGE)])
    driver.tick()
    assert seams.names == ["send"]


def test_a_journal_error_sends_and_applies_nothing():
    driver, _, seams = make_driver(**EVERYTHING)
    seams.is_disk_full = True
    with pytest.raises(JournalError):
        driver.tick()
    assert seams.calls == []


def test_a_peer_error_rises_and_what_the_node_decided_is_still_honoured():
    driver, node, seams = make_driver(**EVERYTHING)
    node.error = PeerError("no", reason="signature")
    with pytest.raises(PeerError):
        driver.received(PEER, MESSAGE)
    assert seams.names == IN_ORDER


def test_messages_are_sent_in_the_order_of_the_node():
    messages = [FrontierDigest(bytes([k]) * 32) for k in range(3)]
    driver, _, seams = make_driver(send=[(peer, message) for message in messages for peer in (1, 2)])
    driver.tick()
    assert seams.calls == [("send", peer, (message,)) for message in messages for peer in (1, 2)]


@pytest.mark.parametrize(("now", "seconds"), [(10.0, 2.0), (12.0, 0.0), (13.0, 0.0)])
def test_the_shell_is_told_how_long_it_may_wait(now, seconds):
    driver, _, _ = make_driver(now=now)
    assert driver.seconds_to_tick() == seconds
