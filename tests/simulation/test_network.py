"""Links behave like streams, and misbehave only as streams and queues do."""

import random

import pytest

from seedflood.errors import PeerError
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.messages import FrontierDigest, Standing
from seedflood.protocol.swarm.messages import Goodbye, Hello, Member, Ping
from seedflood.transport.codec import PullPart, encode
from simulation.clock import Clock
from simulation.network import FRAME_BYTES, Network, Weather
from simulation.seedflood.traffic import TRAFFIC


class Host:
    """An endpoint that writes down what its driver is told."""

    is_up, is_paused, refuses = True, False, False

    def __init__(self, index):
        self.index = index
        self.member = Member(bytes([index]) * 32, f"h{index}", 1, signature=bytes(64))
        self.origin = self.member.origin
        self.told = []
        self.node = self.driver = self

    def hello(self):
        return Hello(bytes(32), bytes(32), self.member)

    def check_hello(self, hello):
        if self.refuses:
            raise PeerError("not you", reason="test")

    def enter(self, action, *args):
        action(*args)

    def connected(self, peer, hello):
        self.told.append(("connected", peer))

    def disconnected(self, peer, reason):
        self.told.append(("disconnected", peer))

    def received(self, peer, message):
        self.told.append(message)

    def next_content(self, peer):
        return None

    def pulled(self, peer):
        self.told.append(("pulled", peer))

    def answer(self, frontier):
        return [updates(9)]


def linked(weather=None, hosts=2):
    clock = Clock()
    network = Network([(k, k + 1) for k in range(hosts - 1)], clock, random.Random(1), weather or Weather(), TRAFFIC)
    ends = [Host(k) for k in range(hosts)]
    for host in ends:
        network.joined(host)
    clock.run(lambda: False, 2.0)
    return clock, network, ends


def updates(step):
    return Updates((make_bundle(100, step, ((step, step),), signature=bytes(64)),))


def steps_told(host):
    return [bundle.step for said in host.told if isinstance(said, Updates) for bundle in said.bundles]


def pass_seconds(clock, seconds=2.0):
    clock.run(lambda: False, seconds)


def test_both_ends_are_told_of_a_link_and_of_its_end():
    clock, network, (a, b) = linked()
    network.break_link(0, 1)
    assert a.told == [("connected", b.origin), ("disconnected", b.origin)]
    assert b.told == [("connected", a.origin), ("disconnected", a.origin)]
    pass_seconds(clock)
    assert a.told[-1] == ("connected", b.origin)


def test_a_refused_hello_ends_the_link_and_the_refused_side_hears_of_nothing_else():
    clock, network, (a, b) = linked()
    a.refuses = True
    network.break_link(0, 1)
    a.told.clear()
    b.told.clear()
    pass_seconds(clock, 20.0)
    assert a.told == []
    assert b.told.count(("connected", a.origin)) == b.told.count(("disconnected", a.origin))
    assert not network.is_linked(0, 1)


def test_what_is_sent_arrives_in_order():
    clock, network, (a, b) = linked(Weather(delay_max=1.0))
    for step in range(50):
        network.send(a, b.origin, updates(step))
    pass_seconds(clock)
    assert steps_told(b) == list(range(50))


def test_what_is_on_its_way_is_lost_with_the_link():
    clock, network, (a, b) = linked()
    network.send(a, b.origin, updates(0))
    network.break_link(0, 1)
    pass_seconds(clock)
    assert steps_told(b) == []


@pytest.mark.parametrize(
    ("weather", "fault"),
    [
        (Weather(duplicate=0.5), "duplicated_frames"),
        (Weather(lose=0.5), "lost_frames"),
        (Weather(delay_max=1.0, reorder=0.5), "reordered_frames"),
    ],
)
def test_frames_of_updates_are_duplicated_lost_and_reordered(weather, fault):
    clock, network, (a, b) = linked(weather)
    for step in range(50):
        network.send(a, b.origin, updates(step))
        pass_seconds(clock, 0.01)
    pass_seconds(clock)
    arrived = steps_told(b)
    assert network.faults[fault] > 0
    assert {
        "duplicated_frames": len(arrived) > 50,
        "lost_frames": len(arrived) < 50,
        "reordered_frames": arrived != sorted(arrived) == list(range(50)),
    }[fault]


def test_other_frames_are_never_lost_or_doubled():
    clock, network, (a, b) = linked(Weather(duplicate=0.5, lose=0.5, reorder=0.5))
    for k in range(50):
        network.send(a, b.origin, Ping(float(k)))
    pass_seconds(clock)
    assert b.told[1:] == [Ping(float(k)) for k in range(50)]


def test_a_silent_way_holds_everything_back_and_tells_nobody():
    clock, network, (a, b) = linked()
    network.silence(0, 1, seconds=5.0)
    network.send(a, b.origin, Ping(1.0))
    network.send(b, a.origin, Ping(2.0))
    pass_seconds(clock, 4.0)
    assert a.told[1:] == [Ping(2.0)]
    assert b.told[1:] == []
    pass_seconds(clock)
    assert b.told[1:] == [Ping(1.0)]


def test_a_partition_cuts_only_what_crosses_it_until_it_ends():
    clock, network, hosts = linked(hosts=3)
    network.partition({0})
    pass_seconds(clock, 10.0)
    assert [network.is_linked(0, 1), network.is_linked(1, 2)] == [False, True]
    assert hosts[2].told == [("connected", hosts[1].origin)]
    network.unite()
    pass_seconds(clock)
    assert network.is_linked(0, 1)


def test_a_pull_is_answered_and_ends_once():
    clock, network, (a, b) = linked()
    assert network.pull(a, b.origin, ())
    assert not network.pull(a, b.origin, ())
    pass_seconds(clock)
    assert a.told[1:] == [updates(9), ("pulled", b.origin)]


def test_a_pull_that_is_broken_off_ends_before_its_link_does():
    _, network, (a, b) = linked()
    network.pull(a, b.origin, ())
    network.break_link(0, 1)
    assert a.told[1:] == [("pulled", b.origin), ("disconnected", b.origin)]


def test_a_paused_host_is_not_dialled():
    clock, network, (a, b) = linked()
    b.is_paused = True
    network.break_link(0, 1)
    pass_seconds(clock, 10.0)
    assert not network.is_linked(0, 1)
    b.is_paused = False
    pass_seconds(clock)
    assert network.is_linked(0, 1)
    assert a.told[-1] == ("connected", b.origin)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (b"\xff\xff\xff", "frame"),
        (bytes((4 << 20) + 1), "oversize"),
        (Hello(bytes(32), bytes(32), Member(bytes(32), "h0", 1, signature=bytes(64))), "hello"),
        (Standing((), bytes(32)), "order"),
        (PullPart(1, Standing((), bytes(32))), "order"),
        (FrontierDigest(b"short"), "limit"),
    ],
)
def test_a_frame_that_may_not_be_said_ends_the_link(item, reason):
    clock, network, (a, b) = linked()
    network.send_raw(a, b.index, item)
    pass_seconds(clock, 0.03)
    assert network.faults[f"refused_{reason}"] == 1
    assert b.told == [("connected", a.origin), ("disconnected", a.origin)]


def test_nothing_is_said_on_a_link_before_a_hello():
    clock, network, (a, b) = linked()
    network.break_link(0, 1)
    a.hello = lambda: Ping(1.0)
    pass_seconds(clock, 20)
    assert network.faults["refused_hello"] > 1
    assert b.told == [("connected", a.origin), ("disconnected", a.origin)]


def test_a_goodbye_ends_the_link():
    clock, network, (a, b) = linked()
    network.send(a, b.origin, Goodbye("enough"))
    pass_seconds(clock, 0.03)
    assert b.told[1:] == [Goodbye("enough"), ("disconnected", a.origin)]


def test_who_is_refused_again_and_again_is_dialled_ever_later():
    clock, network, (a, _) = linked(Weather(redial_max=30.0))
    network.break_link(0, 1)
    a.hello = lambda: Ping(1.0)
    counts = []
    for _ in range(2):
        before = network.faults["refused_hello"]
        pass_seconds(clock, 150)
        counts.append(network.faults["refused_hello"] - before)
    assert 0 < counts[1] <= counts[0] < 40


def test_only_the_end_that_has_the_address_dials():
    _, network, _ = linked(Weather(redial_max=30.0, is_one_sided=True))
    assert len(next(iter(network._links.values())).diallers) == 1
    assert network.is_linked(0, 1)


def test_bytes_that_arrive_are_counted_by_kind_of_message():
    clock, network, (a, b) = linked()
    assert network.carried.keys() == {"Hello", "Frames"}
    hellos = network.carried["Frames"]
    network.send(a, b.origin, Ping(1.0))
    assert network.carried["Ping"] == 0, "it is on its way"
    pass_seconds(clock)
    assert network.carried["Ping"] == len(encode(Ping(1.0))[0])
    assert network.carried["Frames"] == hellos + FRAME_BYTES
