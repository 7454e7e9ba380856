"""Copies for hosts that join: who crawls, as a donor or as one that is served, keeps no other host out."""

import pytest
from gossip import Bytes, World

from seedflood.protocol.gasloc.copies import PLACES, RESTING_PLACES
from seedflood.protocol.gasloc.messages import (
    NEWEST,
    Accept,
    Chunk,
    Kind,
    Offer,
    Progress,
    Want,
    decode,
    encode,
)
from seedflood.protocol.gasloc.orders import OpenCopy
from seedflood.protocol.swarm.messages import Opaque

COPY_BYTES = 1_000_000


def make_world(*paddings):
    """Hosts that take part, each linked with all others; there is place for one that joins late."""
    world = World(clients=len(paddings) + 1, steps=4000)
    for padding in paddings:
        world.add(padding=padding)
    world.complete()
    world.run(40)
    return world, world.hosts[:]


def said(message):
    return decode(message.data) if isinstance(message, Opaque) else None


def let_crawl(world, liar, seconds=25.0):
    """It claims the greatest round, and gives a copy chunk by chunk, one in this time."""
    last = {}

    def change(sender, receiver, message):
        sent = said(message)
        if sender is liar and isinstance(sent, Progress):
            return Opaque(encode(Progress(world.rules.rounds, True, True)))
        return message

    def drop(sender, receiver, message):
        if sender is not liar or not isinstance(said(message), Chunk):
            return False
        is_due = world.now >= last.get(receiver, 0.0) + seconds
        last[receiver] = world.now if is_due else last.get(receiver, 0.0)
        return not is_due

    world.change, world.drop = change, drop


def test_a_donor_that_crawls_keeps_nobody_out_beside_one_that_does_not():
    world, (liar, honest, _) = make_world(COPY_BYTES, COPY_BYTES, 0)
    late = world.add(500)
    let_crawl(world, liar)
    world.plan(late, liar)
    world.run(1)
    assert late.gasloc.fetch.donor == liar.origin
    world.plan(late, honest)
    world.run(45, until=lambda: late.adopted)
    assert late.adopted == 1
    assert late.gasloc.trust.failures == {liar.origin: 1}


def test_a_donor_that_crawls_is_left_again_for_one_that_was_busy():
    world, (liar, honest, *others) = make_world(COPY_BYTES, COPY_BYTES, 0, 0)
    late = world.add(500)
    let_crawl(world, liar)
    for other in others[:PLACES]:
        take_slowly(world, honest, other)
    world.plan(late, liar)
    world.run(1)
    world.plan(late, honest)
    world.run(200, until=lambda: late.adopted)
    assert late.adopted == 1


def test_a_slow_donor_that_is_the_only_one_is_waited_for():
    world, (donor,) = make_world(COPY_BYTES)
    late = world.add(500)
    world.plan(late, donor, rate=2e4)
    world.run(120, until=lambda: late.adopted)
    assert late.adopted == 1


def take_slowly(world, donor, liar):
    """It wants a copy, takes nothing of it beyond the first piece, and asks for the rest of it every second."""
    others = world.drop

    def drop(sender, receiver, message):
        is_ours = sender is donor and receiver is liar and isinstance(said(message), Chunk)
        return is_ours or others(sender, receiver, message)

    world.drop = drop

    def hear(message):
        donor.do(lambda now: donor.node.received(liar.origin, Opaque(encode(message)), now))

    def offered():
        place = donor.gasloc.serve._places.get(liar.origin)
        return place.sending if place is not None else None

    def lie(number):
        sending = offered()
        if sending is None:
            hear(Want(NEWEST))
        else:
            hear(Accept(sending.content.digest, number // 20))
        world.at(world.now + 1.0, lambda: lie(number + 1))

    lie(0)


def test_who_is_served_and_crawls_keeps_nobody_else_from_a_copy():
    world, (donor, liar) = make_world(COPY_BYTES, 0)
    late = world.add(500)
    take_slowly(world, donor, liar)
    world.run(1)
    world.plan(late, donor)
    world.run(10, until=lambda: late.adopted)
    assert late.adopted == 1


def test_who_crawls_loses_its_place_though_it_asks_again_and_again():
    world, (donor, *liars) = make_world(COPY_BYTES, *[0] * PLACES)
    for liar in liars:
        take_slowly(world, donor, liar)
    world.run(1)
    assert len(donor.gasloc.serve.peers) == PLACES
    world.run(30)
    assert not donor.gasloc.serve.peers
    late = world.add(500)
    world.plan(late, donor)
    world.run(5, until=lambda: late.adopted)
    assert late.adopted == 1


def test_who_wants_something_else_and_then_the_same_again_gets_no_fresh_place_for_it():
    world, (donor, *liars) = make_world(COPY_BYTES, *[0] * PLACES)
    late = world.add(500)
    for liar in liars:
        take_slowly(world, donor, liar)
        ask_by_turns(world, donor, liar)
    world.run(1)
    world.plan(late, donor)
    world.run(60, until=lambda: late.adopted)
    assert late.adopted == 1


def ask_by_turns(world, donor, liar):
    """Whenever its place would soon be lost, it wants what nobody has, and then a copy again."""

    def hear(wanted):
        donor.do(lambda now: donor.node.received(liar.origin, Opaque(encode(Want(wanted))), now))

    def lie():
        hear(b"none" * 8)
        hear(NEWEST)
        world.at(world.now + 5.0, lie)

    world.at(world.now + 5.0, lie)


def test_who_rests_at_the_end_takes_no_place_of_those_who_took_nothing_yet():
    """It rests from the replica that it was offered, and not from the one that takes its place."""
    world, (donor, other, *crowd) = make_world(*[0] * (RESTING_PLACES + 2))
    world.drop = lambda sender, receiver, message: isinstance(said(message), Offer)
    first, second = Bytes(b"first"), Bytes(b"second")

    def want(content, *hosts):
        for host in hosts:
            donor.do(lambda now, host=host: donor.node.received(host.origin, Opaque(encode(Want(content.digest))), now))

    donor.gasloc.serve.publish(first, world.rules.rounds)
    want(first, other)
    world.run(31)
    assert not donor.gasloc.serve.peers
    want(first, *crowd, other)
    assert set(donor.gasloc.serve.peers) == {host.origin for host in crowd}
    donor.gasloc.serve.publish(second, world.rules.rounds)
    want(second, *crowd, other)
    assert set(donor.gasloc.serve.peers) == {host.origin for host in (*crowd, other)}


@pytest.mark.parametrize("claimed", [1, COPY_BYTES - 1])
def test_bytes_that_are_claimed_give_no_more_time_than_bytes_that_were_sent(claimed):
    world, (donor, liar) = make_world(COPY_BYTES, 0)
    donor.do(lambda now: donor.node.received(liar.origin, Opaque(encode(Want(NEWEST))), now))
    world.run(1)
    (place,) = donor.gasloc.serve._places.values()
    for start in (claimed, 0, claimed, 0):
        accept = Opaque(encode(Accept(place.sending.content.digest, start)))
        donor.do(lambda now, accept=accept: donor.node.received(liar.origin, accept, now))
        world.run(16)
    assert not donor.gasloc.serve.peers


def test_a_donor_that_offers_copy_after_copy_has_no_more_time_for_them():
    world, (liar, honest, _) = make_world(COPY_BYTES, COPY_BYTES, 0)
    late = world.add(500)
    let_crawl(world, liar)
    world.plan(late, liar)
    world.run(1)

    def lie(number):
        offer = Offer(Kind.COPY, world.rules.rounds, bytes([number]) * 32, COPY_BYTES)
        if late.gasloc.fetch.donor == liar.origin:
            late.do(lambda now: late.node.received(liar.origin, Opaque(encode(offer)), now))
        world.at(world.now + 15, lambda: lie(number + 1))

    lie(1)
    world.plan(late, honest)
    world.run(45, until=lambda: late.adopted)
    assert late.adopted == 1


def test_who_wants_a_copy_again_and_again_has_none_opened_again_at_once():
    world, (donor, liar) = make_world(COPY_BYTES, 0)
    opened = []
    donor.gasloc.serve._outbox.order = opened.append
    for number in range(20):
        donor.node.received(liar.origin, Opaque(encode(Want(b"none" * 8 if number % 2 else NEWEST))), world.now)
    assert opened == [OpenCopy(liar.origin)]
