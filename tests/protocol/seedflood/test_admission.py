from dataclasses import replace

import pytest
from nodes import PROBES, hear, linked, publish, sent, started, tick, windows
from origins import EPOCH_BYTES, A, B, C, D, Origin, epoch, make_rules

from seedflood.errors import ConfigError, PeerError
from seedflood.protocol.frontier import RANGES_MAX
from seedflood.protocol.seedflood.bundles import BUNDLE_BYTES_MAX, LOSS_BYTES, SCALAR_MAX, Updates, make_bundle
from seedflood.protocol.seedflood.epochs import digest_of
from seedflood.protocol.seedflood.messages import Votes
from seedflood.protocol.seedflood.outputs import Measured
from seedflood.protocol.seedflood.payload import PAIRS, Coefficients, Pairs
from seedflood.protocol.swarm import messages
from seedflood.protocol.swarm.messages import Members
from simulation.seedflood.compression import encode_coefficients


def refused(node, peer, *bundles):
    out = hear(node, peer, Updates(bundles))
    assert out.bundles == []
    assert out.send == []
    return node.admission.refused


def test_an_unknown_origin_is_refused():
    assert refused(linked(B), B, D.bundle(0)) == {"unknown origin": 1}


def test_what_lies_beyond_the_run_is_refused():
    assert refused(linked(B, steps=10), B, B.bundle(10), B.bundle(0, skipped=1)) == {"beyond the run": 2}


def test_what_is_not_a_round_is_refused():
    node = linked(B, steps=10, local_steps=5)
    assert refused(node, B, B.bundle(0), B.bundle(1, count=5), B.bundle(0, count=6)) == {"not a round": 3}


TINY = Coefficients((2, 1))
GOOD = encode_coefficients(TINY, [33, 0], [True, False, True])


def test_a_payload_of_the_size_and_ranges_of_the_run_is_taken():
    node = linked(B, compression=TINY)
    assert hear(node, B, Updates((B.bundle(0, payload=GOOD),))).bundles == [B.bundle(0, payload=GOOD)]


@pytest.mark.parametrize("payload", [None, GOOD[:-1], GOOD + b"\0", b"\x22" + GOOD[1:], b"\xff" + GOOD[1:]])
def test_what_the_run_does_not_tell_is_refused_before_its_signature_is_looked_at(payload):
    node = linked(B, compression=TINY)
    unsigned = B.bundle(0, payload=payload).with_signature(bytes(64))
    assert refused(node, B, unsigned) == {"payload": 1}


@pytest.mark.parametrize("scalar", [1001, -1001, SCALAR_MAX])
def test_what_is_beyond_the_clip_of_the_run_is_refused_before_its_signature_is_looked_at(scalar):
    node = linked(B, compression=Pairs(1000))
    assert hear(node, B, Updates((B.bundle(0, scalar=-1000),))).bundles == [B.bundle(0, scalar=-1000)]
    unsigned = B.bundle(1, scalar=scalar).with_signature(bytes(64))
    assert refused(node, B, unsigned) == {"payload": 1}


def test_a_payload_is_refused_in_a_run_of_pairs():
    assert refused(linked(B), B, B.bundle(0, payload=GOOD)) == {"payload": 1}


def test_a_payload_under_a_wrong_signature_raises():
    forged = make_bundle(B.id, 0, (bytes(TINY.size),), signature=B.bundle(0, payload=GOOD).signature)
    with pytest.raises(PeerError, match="signature"):
        linked(B, compression=TINY).received(B.id, Updates((forged,)), 0.0)


def test_a_run_whose_bundles_would_be_too_large_is_refused():
    make_rules(local_steps=2, compression=Coefficients((8 * (BUNDLE_BYTES_MAX // 2 - 1 - LOSS_BYTES),)))
    with pytest.raises(ConfigError, match="more than a message holds"):
        make_rules(local_steps=2, compression=Coefficients((8 * (BUNDLE_BYTES_MAX // 2 - LOSS_BYTES),)))


def test_a_batch_may_say_one_thing_twice_but_not_contradict_itself():
    node = linked(B)
    hear(node, B, Updates((B.bundle(0), B.bundle(0))))
    assert node.admission.refused == {}
    hear(node, B, Updates((B.bundle(3), B.bundle(3, skipped=2))))
    assert node.admission.refused == {"equivocation": 1}
    assert not node.frontier.holds_any(B.id, 1, 2)


def test_equivocation_is_refused():
    node = linked(B)
    hear(node, B, B.updates(0, 3))
    assert refused(node, B, B.bundle(3, skipped=2, scalar=9)) == {"equivocation": 1}


def test_of_two_contradicting_bundles_in_one_message_the_first_counts():
    node = linked(B)
    out = hear(node, B, Updates((B.bundle(1, skipped=1), B.bundle(1))))
    assert out.bundles == [B.bundle(1, skipped=1)]


def test_more_holes_than_a_frontier_may_have_are_refused():
    node = linked(B, steps=10_000, window="bounded")
    hear(node, B, B.updates(*range(2, 2 + 2 * RANGES_MAX, 2)))
    assert refused(node, B, B.bundle(9_000)) == {"too far ahead": 1}


@pytest.mark.parametrize(("size", "rounds"), [(None, 4096), (400_000, 332), (2_080_000, 64)])
def test_in_strict_windows_a_runaway_fills_no_memory(size, rounds):
    """What follows without a hole takes no range of a frontier, and would wait for its window."""
    compression = PAIRS if size is None else Coefficients((size,))
    assert make_rules(compression=compression).ahead_steps == rounds
    node = linked(B, steps=10_000)
    ahead = node.rules.ahead_steps
    hear(node, B, Updates((B.bundle(ahead - 1, skipped=ahead - 1),)))
    assert node.frontier.mark(B.id) == ahead
    assert refused(node, B, B.bundle(ahead)) == {"too far ahead": 1}
    publish(node)
    assert hear(node, B, B.updates(ahead)).bundles == ([] if node.step == 0 else [B.bundle(ahead)])


def test_who_joins_may_be_far_behind():
    node = started(steps=10_000)
    node.connected(B.id, B.hello([B.held(9_000)]), 0.0)
    assert hear(node, B, B.updates(9_000)).bundles == [B.bundle(9_000)]


def test_in_bounded_windows_one_may_be_far_ahead():
    node = linked(B, steps=10_000, window="bounded")
    assert hear(node, B, B.updates(9_000)).bundles == [B.bundle(9_000)]


def test_what_is_too_far_ahead_costs_no_verification_however_often_it_comes():
    node = linked(B, steps=10_000, window="bounded")
    hear(node, B, B.updates(*range(2, 2 + 2 * RANGES_MAX, 2)))
    forged = B.bundle(9_000).with_signature(bytes(64))  # would end the link, if it were verified
    for _ in range(3):
        hear(node, B, Updates((forged,)))
    assert node.admission.refused == {"too far ahead": 3}


def test_strangers_beyond_the_places_that_there_are_cost_no_verification():
    node = linked(B)
    known, places = len(node.membership), node.rules.origins_max
    strangers = [Origin(f"stranger {k}") for k in range(places)]
    hear(node, B, Members(tuple(one.member() for one in strangers[: places - known])))
    assert len(node.membership) == places
    forged = [replace(one.member(), signature=bytes(64)) for one in strangers[places - known :]]
    out = hear(node, B, Members(tuple(forged)))
    assert (out.members, out.send) == ([], [])
    assert node.admission.refused == {"too many origins": known}
    assert hear(node, B, Members((B.member(version=9),))).members == [B.member(version=9)]
    with pytest.raises(PeerError, match="no more are let in"):
        node.admission.check_hello(strangers[-1].hello())


@pytest.fixture
def twin(monkeypatch):
    """A second key under the origin id of B: found by search, as a 64-bit digest allows."""
    name_of = messages.origin_id
    twin = Origin("bill")
    twin.id = B.id
    monkeypatch.setattr(messages, "origin_id", lambda key: B.id if key == twin.public_key else name_of(key))
    return twin


def test_the_first_key_of_an_origin_stays_however_new_the_statement_of_another(twin):
    node = linked(B)
    out = hear(node, B, Members((twin.member(incarnation=9),)))
    assert (out.members, out.send, node.membership.name(B.id)) == ([], [], "bob")
    assert node.admission.refused == {"another key": 1}


def test_a_peer_under_the_origin_of_another_key_is_not_linked(twin):
    node = linked(B)
    with pytest.raises(PeerError) as caught:
        node.admission.check_hello(twin.hello())
    assert caught.value.reason == "identity"
    assert node.admission.refused == {"another key": 1}


def test_no_relay_is_blamed_for_the_bundles_of_an_origin_with_two_keys(twin):
    node = linked(B, C)
    hear(node, C, Members((twin.member(),)))
    assert refused(node, C, twin.bundle(0)) == {"another key": 2}


def test_another_key_under_our_own_origin_ends_nobody(monkeypatch):
    name_of = messages.origin_id
    twin = Origin("bill")
    monkeypatch.setattr(messages, "origin_id", lambda key: A.id if key == twin.public_key else name_of(key))
    assert not hear(linked(B), B, Members((twin.member(incarnation=9),))).is_superseded


def test_good_bundles_beside_a_refused_one_are_taken():
    node = linked(B)
    assert hear(node, B, Updates((D.bundle(0), B.bundle(0)))).bundles == [B.bundle(0)]


def test_a_bundle_with_a_wrong_signature_raises_and_nothing_of_its_message_is_used():
    node = linked(B, C)
    forged = make_bundle(B.id, 1, ((5, 5),), signature=B.bundle(1).signature)
    with pytest.raises(PeerError) as caught:
        node.received(B.id, Updates((B.bundle(0), forged)), 0.0)
    assert caught.value.reason == "signature"
    assert node.admission.refused == {"signature": 1}
    assert node.frontier.count() == 0
    out = node.collect()
    assert (out.bundles, out.send, windows(out)) == ([], [], [])


def test_a_bundle_of_another_run_has_a_wrong_signature():
    node = B.node(replace(make_rules(clients=1), run_id=b"x" * 32))
    node.answer(Measured(0, PROBES), 0.0)
    (foreign,) = node.collect().bundles
    with pytest.raises(PeerError):
        linked(B).received(B.id, Updates((foreign,)), 0.0)


def test_a_statement_with_a_wrong_signature_raises_and_nothing_of_its_message_is_used():
    node = linked(B)
    forged = replace(D.member(), name="dora")
    with pytest.raises(PeerError, match="dora"):
        node.received(B.id, Members((C.member(), forged)), 0.0)
    assert C.id not in node.membership
    assert node.collect().members == []


def test_an_old_statement_is_not_even_verified():
    node = linked(B)
    out = hear(node, B, Members((replace(B.member(), incarnation=0, name="bill"),)))
    assert out.members == []
    assert node.membership.name(B.id) == "bob"


def test_a_second_hello_is_refused():
    with pytest.raises(PeerError, match="second hello"):
        linked(B).received(B.id, B.hello(), 0.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run_id": b"x" * 32}, "run"),
        ({"base_digest": b"x" * 32}, "base model"),
        ({"member": replace(B.member(), name="bill")}, "signature"),
        ({"members": (replace(C.member(), name="carl"),)}, "signature"),
    ],
)
def test_a_hello_that_does_not_belong_with_us_is_refused(change, reason):
    with pytest.raises(PeerError) as caught:
        started().admission.check_hello(replace(B.hello(), **change))
    assert caught.value.reason == reason


def test_a_hello_of_our_run_is_accepted():
    started().admission.check_hello(B.hello([B.held(3)], members=[C.member()]))


def is_sum_admitted(closed, **rules):
    node = linked(B)
    node.admission._rules = replace(node.rules, refresh_period=10, **rules)
    try:
        node.admission.check_epoch(closed, digest_of(closed, EPOCH_BYTES))
    except PeerError:
        return False
    return True


def test_a_sum_is_no_more_than_what_was_told_comes_to():
    assert is_sum_admitted(epoch(0, B.held(2), total=2 * SCALAR_MAX))
    assert not is_sum_admitted(epoch(0, B.held(2), total=2 * SCALAR_MAX + 1))


def test_what_an_epoch_leaves_to_the_next_one_is_no_coefficient():
    last = epoch(0, B.held(2), total=2 * SCALAR_MAX + 1)
    assert is_sum_admitted(last, left_bytes=EPOCH_BYTES)
    assert not is_sum_admitted(last, left_bytes=0)


def test_an_optimiser_that_goes_by_steps_may_come_to_more_than_what_was_told():
    far = epoch(0, B.held(2), total=-10 * SCALAR_MAX * 100)
    assert not is_sum_admitted(far)
    assert is_sum_admitted(far, step_reach=100 * SCALAR_MAX)
    assert not is_sum_admitted(far, step_reach=100 * SCALAR_MAX - 1)


def receive_with_forged(node, *votes):
    """From B, which ends its message with a vote that D never signed."""
    forged = D.vote(epoch(0, A.held(4), B.held(4), C.held(4), D.held(4)))._replace(signature=bytes(64))
    with pytest.raises(PeerError):
        node.received(B.id, Votes((*votes, forged)), 0.0)
    return node.collect()


def test_good_votes_before_a_forged_one_are_passed_on():
    """Else a liar could stop the votes of others at every neighbour."""
    node = linked(B, C, D, window="bounded", refresh_period=4)
    good = C.vote(epoch(0, A.held(4), B.held(4), C.held(4), D.held(4)))
    outs = [receive_with_forged(node, good), hear(node, C, Votes((good,)), 0.0), tick(node, 2.0), tick(node, 4.0)]
    assert good in [vote for out in outs for message in sent(out, D, Votes) for vote in message.votes]


def test_our_own_vote_before_a_forged_one_is_kept():
    """A node that lost its disk must not vote again after the next crash."""
    node = linked(B, C, D, window="bounded", refresh_period=4)
    own = A.vote(epoch(0, A.held(4), B.held(4), C.held(4), D.held(4)))
    outs = [receive_with_forged(node, own), hear(node, C, Votes((own,)), 0.0), tick(node, 2.0)]
    assert [record.key for out in outs for record in out.records] == [b"votes"]
