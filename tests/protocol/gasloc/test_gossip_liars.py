"""What others may say costs little, changes nothing, and ends nobody."""

from itertools import pairwise

import pytest
from gossip import Bytes, World

from seedflood.errors import PeerError
from seedflood.protocol.gasloc.messages import (
    NEWEST,
    Accept,
    Chunk,
    Decline,
    Kind,
    Offer,
    Progress,
    Reason,
    Want,
    decode,
    encode,
)
from seedflood.protocol.gasloc.orders import Mix, OpenCopy
from seedflood.protocol.swarm.messages import AlgorithmMessage, Opaque

DIGEST = bytes(range(32))


def make_pair(**rules):
    """An honest host and one of which we say what it says."""
    world = World(clients=2, steps=400, **rules)
    world.add()
    world.add()
    world.ring()
    world.run(30, until=lambda: world.hosts[0].gasloc.round == 2 and world.hosts[0].node.phase == "training")
    return world, *world.hosts


def hear(world, host, peer, message):
    """What the host does after it has heard this; honoured."""
    host.node.received(peer.origin, Opaque(encode(message)), world.now)
    out = host.node.collect()
    host.honour(out)
    return out


def replies(out):
    return [decode(message.data) for _, message in out.send if isinstance(message, Opaque)]


def offer(round_=2, size=100, digest=DIGEST, encoding="exact", degree=1, kind=Kind.ROUND):
    return Offer(kind, round_, digest, size, degree, encoding)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (offer(size=1 << 40), "limit"),
        (offer(round_=100), "limit"),
        (offer(encoding="other"), "limit"),
        (offer(degree=0), "limit"),
        (offer(kind=Kind.COPY, size=1 << 45), "limit"),
        (offer(kind=Kind.COPY, round_=10**6), "limit"),
        (Progress(10**9, True, True), "limit"),
    ],
)
def test_what_no_host_of_the_run_says_is_refused(message, reason):
    world, honest, liar = make_pair()
    with pytest.raises(PeerError) as caught:
        hear(world, honest, liar, message)
    assert caught.value.reason == reason
    out = honest.node.collect()
    assert out.orders == out.records == replies(out) == []


def test_a_message_of_another_algorithm_is_refused():
    world, honest, liar = make_pair()
    with pytest.raises(PeerError, match="another algorithm"):
        honest.node.received(liar.origin, AlgorithmMessage(), world.now)


def test_of_two_offers_for_one_round_the_first_counts():
    world, honest, liar = make_pair()
    hear(world, honest, liar, offer())
    hear(world, honest, liar, offer())
    said = replies(hear(world, honest, liar, offer(digest=bytes(32))))
    assert said == [Decline(Kind.ROUND, offer().round, Reason.PASSED, honest.gasloc.exchange.round)]
    assert honest.gasloc.exchange._offers[liar.origin] == offer()


def test_endless_offers_take_no_room_and_cause_nothing():
    world, honest, liar = make_pair(matching="one")
    for round_ in range(3, 90):
        out = hear(world, honest, liar, offer(round_))
        assert out.orders == out.records == replies(out) == []
    assert len(honest.gasloc.exchange._offers) == 1
    assert len(honest.gasloc.carrier._receiving) == 0


def test_offers_for_rounds_that_are_over_are_declined_with_a_word():
    world, honest, liar = make_pair()
    assert replies(hear(world, honest, liar, offer(0))) == [Decline(Kind.ROUND, 0, Reason.PASSED, 1)]


@pytest.mark.parametrize(
    "message",
    [
        Chunk(DIGEST[:8], 0, bytes(1000)),
        Accept(DIGEST, 0),
        Decline(Kind.ROUND, 1, Reason.LATE, 1),
        Decline(Kind.COPY, 0, Reason.BUSY, 0),
        offer(kind=Kind.COPY),
    ],
)
def test_what_nobody_has_asked_for_changes_nothing(message):
    world, honest, liar = make_pair()
    out = hear(world, honest, liar, message)
    assert out.orders == out.records == replies(out) == []


@pytest.mark.parametrize("is_liar_first", [False, True])
def test_parameters_that_are_not_what_was_offered_are_not_mixed_and_their_sender_is_avoided(is_liar_first):
    world = World(clients=2, steps=200)
    world.add()
    world.add()
    liar, honest = sorted(world.hosts, key=lambda host: host.origin, reverse=not is_liar_first)

    def change(sender, receiver, message):
        if sender is not liar or not isinstance(message, Opaque):
            return message
        sent = decode(message.data)
        if isinstance(sent, Chunk):
            return Opaque(encode(Chunk(sent.key, sent.offset, b"9" * len(sent.data))))
        return message

    world.change = change
    world.ring()
    world.finish()
    tries = [event for event in honest.named("exchange skipped") if event.facts["reason"] == "digest"]
    assert 2 <= len(tries) <= 6
    gaps = [b.facts["round"] - a.facts["round"] for a, b in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 4
    assert {others for _, others in honest.mixes} == {()}
    assert honest.values == honest.disk.base


@pytest.mark.parametrize("is_liar_slow", [False, True])
def test_offers_of_a_size_that_parameters_cannot_have_cost_the_exchange_alone(is_liar_slow):
    """Whoever of the two comes to the round first."""
    world = World(clients=2, steps=80)
    world.most = 1000
    honest, liar = world.add(), world.add(padding=5000, step_seconds=0.4 if is_liar_slow else 0.1)
    world.ring()
    world.finish()
    assert "size" in {event.facts["reason"] for event in honest.named("exchange skipped")}
    assert len(honest.named("a neighbour exchanges no parameters of this run")) <= 5
    assert {others for host in world.hosts for _, others in host.mixes} == {()}
    assert honest.refused == liar.refused == []


def test_a_neighbour_that_sends_nothing_costs_no_more_than_the_bound():
    world = World(clients=2, steps=40)
    honest, liar = world.add(), world.add()
    world.drop = lambda sender, receiver, message: (
        sender is liar and isinstance(message, Opaque) and isinstance(decode(message.data), Chunk)
    )
    world.ring()
    world.finish()
    assert "late" in world.reasons()
    assert all(seconds <= allowed for seconds, allowed in honest.waits)
    assert honest.gasloc.pace.throughput[liar.origin] < 1e6


def test_neighbours_cannot_hold_us_up_one_after_the_other():
    """A partner that nobody thought of is taken in place of one that did not come, but not when time is up."""
    world = World(clients=4, steps=400, matching="two")
    honest = world.add()
    liars = [world.add() for _ in range(3)]

    def drop(sender, receiver, message):
        is_said = isinstance(message, Opaque) and sender in liars
        return is_said and not isinstance(decode(message.data), Progress)

    world.drop = drop
    for liar in liars:
        world.plan(honest, liar)
    world.run(60, until=lambda: honest.gasloc.exchange.is_open)
    partners = [world.by_origin(one) for one in honest.gasloc.exchange._pairings]
    (third,) = set(liars) - set(partners)
    assert len(partners) == 2
    round_ = honest.gasloc.round
    hear(world, honest, partners[0], offer(round_, size=10**6))
    assert Decline(Kind.ROUND, round_, Reason.TAKEN, round_) in replies(hear(world, honest, third, offer(round_)))
    world.run(60, until=lambda: honest.named("exchange skipped"))
    world.run(0.1)
    out = hear(world, honest, third, offer(round_))
    assert replies(out) == [Decline(Kind.ROUND, round_, Reason.LATE, round_)]
    assert honest.gasloc.exchange.is_open


def test_copies_are_given_to_few_at_a_time_and_not_again_and_again():
    world = World(clients=4, steps=400)
    donor, liar, second, other = world.add(padding=100_000), world.add(), world.add(), world.add()
    for peer in (liar, second, other):
        world.plan(donor, peer)
    world.run(30, until=lambda: donor.disk.checkpoints and donor.node.phase == "training")
    for peer in (second, liar):
        out = hear(world, donor, peer, Want(NEWEST))
        assert [type(order) for order in out.orders] == [OpenCopy]
    world.run(0.06)
    assert replies(hear(world, donor, other, Want(NEWEST))) == [Decline(Kind.COPY, 0, Reason.BUSY, 0)]
    out = hear(world, donor, liar, Want(NEWEST))
    assert [message.kind for message in replies(out)] == [Kind.COPY]
    assert out.orders == []
    content = donor.gasloc.serve._places[liar.origin].sending.content
    hear(world, donor, liar, Accept(content.digest, content.size))
    assert replies(hear(world, donor, liar, Want(NEWEST))) == [Decline(Kind.COPY, 0, Reason.BUSY, 0)]


def test_a_copy_that_is_not_what_was_offered_is_not_adopted_and_another_donor_is_asked():
    world = World(clients=4, steps=800)
    liar, donor, third = (world.add(padding=50_000) for _ in range(3))
    for other in (donor, third):
        world.plan(liar, other)
    world.plan(donor, third)
    world.run(40)
    late = world.add(500)

    def change(sender, receiver, message):
        if sender is not liar or receiver is not late or not isinstance(message, Opaque):
            return message
        sent = decode(message.data)
        if isinstance(sent, Chunk):
            return Opaque(encode(Chunk(sent.key, sent.offset, b"9" * len(sent.data))))
        return message

    world.change = change
    world.plan(late, liar)
    world.run(10)
    assert late.adopted == 0
    assert late.node.phase == "joining"
    world.plan(late, donor)
    world.run(40)
    assert late.adopted == 1
    assert late.values[0] < 10


@pytest.mark.parametrize("is_another", [False, True])
def test_a_donor_that_only_offers_copies_does_not_keep_a_host_that_joins(is_another):
    """It repeats its offer, or makes another one, before it is given up."""
    world = World(clients=4, steps=4000)
    liar, donor, _ = (world.add() for _ in range(3))
    world.complete()
    world.run(40)
    late = world.add(500)
    world.drop = lambda sender, receiver, message: (
        (sender is liar and receiver is late)
        and isinstance(message, Opaque)
        and not isinstance(decode(message.data), Progress)
    )

    def lie(number):
        if late.node.phase == "joining" and late.gasloc.fetch.donor == liar.origin:
            digest = bytes([number % 256 if is_another else 1]) * 32
            hear(world, late, liar, offer(10, 50_000, digest, "", 0, Kind.COPY))
        world.at(world.now + 8, lambda: lie(number + 1))

    world.plan(late, liar)
    world.run(1)
    assert late.gasloc.fetch.donor == liar.origin
    lie(1)
    world.plan(late, donor)
    world.run(90, until=lambda: late.adopted)
    assert late.adopted == 1


def test_only_what_was_accepted_and_is_whole_is_mixed_once_the_partner_has_all():
    world, honest, liar = make_pair()
    content = Bytes(bytes(5000))
    hear(world, honest, liar, offer(round_=2, size=content.size, digest=content.digest))
    world.drop = lambda sender, receiver, message: sender is liar
    world.run(30, until=lambda: honest.gasloc.exchange.is_open and honest.gasloc.round == 2)
    ours = honest.gasloc.exchange.content
    half = hear(world, honest, liar, Chunk(content.digest[:8], 0, bytes(2500)))
    whole = hear(world, honest, liar, Chunk(content.digest[:8], 2500, bytes(2500)))
    assert half.orders == whole.orders == replies(half) == replies(whole) == []
    honest.compute.put = lambda order: None
    done = hear(world, honest, liar, Accept(ours.digest, ours.size))
    (mix,) = [order for order in done.orders if isinstance(order, Mix)]
    assert [(share.partner, share.digest) for share in mix.partners] == [(liar.origin, content.digest)]
