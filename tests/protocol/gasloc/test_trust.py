"""Whom a host trusts with contents, and whether a transfer moves on."""

from gossip import World

from seedflood.protocol.gasloc.rules import Bounds
from seedflood.protocol.gasloc.trust import DISTRUST_ROUNDS, STILL_SECONDS, TransferDeadline


def test_who_sent_other_bytes_is_left_out_for_twice_as_many_rounds_each_time():
    world = World(clients=2)
    host, liar = world.add(), world.add()
    trust, peer = host.gasloc.trust, liar.origin
    assert trust.is_trusted(peer, 0)
    trust.lied(peer, 3)
    assert not trust.is_trusted(peer, 3 + DISTRUST_ROUNDS - 1)
    assert trust.is_trusted(peer, 3 + DISTRUST_ROUNDS)
    trust.lied(peer, 10)
    assert not trust.is_trusted(peer, 10 + 2 * DISTRUST_ROUNDS - 1)
    assert trust.is_trusted(peer, 10 + 2 * DISTRUST_ROUNDS)
    assert trust.is_trusted(host.origin, 10)


def test_less_than_the_least_part_gives_no_more_time():
    watch = TransferDeadline(100, 10, 0.0)
    watch.look(109, 20.0)
    assert watch.until == STILL_SECONDS
    watch.look(110, 20.0)
    assert (watch.held, watch.until) == (110, 20.0 + STILL_SECONDS)


def test_each_chance_asks_for_half_as_much_and_never_for_nothing():
    bounds = Bounds(throughput_min=1000.0)
    assert [bounds.least_bytes(2.0, chances) for chances in (0, 1, 2, 99)] == [2000, 1000, 500, 1]
