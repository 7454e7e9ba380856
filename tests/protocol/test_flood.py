from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D

from seedflood.protocol.flood import Flood
from seedflood.protocol.messages import Members, Updates


def make_flood(*peers, frontier=()):
    flood = Flood()
    for peer in peers:
        flood.connect(peer.id, frontier)
    return flood


def test_a_bundle_goes_once_to_every_neighbour():
    flood = make_flood(B, C)
    assert flood.spread(A.bundle(0)) == 2
    assert flood.spread(A.bundle(0)) == 0
    assert flood.collect() == [(B.id, A.updates(0)), (C.id, A.updates(0))]
    assert flood.collect() == []


def test_a_bundle_does_not_go_back_to_where_it_came_from():
    flood = make_flood(B, C)
    flood.heard(B.id, A.bundle(0))
    flood.spread(A.bundle(0))
    assert flood.collect() == [(C.id, A.updates(0))]


def test_a_bundle_does_not_go_to_a_neighbour_whose_hello_held_it():
    flood = make_flood(B, frontier=[A.held(1)])
    flood.spread(A.bundle(0))
    flood.offer(B.id, [A.bundle(0), A.bundle(1)])
    assert flood.collect() == [(B.id, A.updates(1))]


def test_a_bundle_goes_to_a_neighbour_that_holds_only_some_of_its_steps():
    flood = make_flood(B, frontier=[A.held(2)])
    flood.spread(A.bundle(3, skipped=2))
    assert len(flood.collect()) == 1


def test_a_batch_forms_until_it_is_collected():
    flood = make_flood(B)
    for step in range(3):
        flood.spread(A.bundle(step))
    assert flood.collect() == [(B.id, A.updates(0, 1, 2))]


def test_statements_precede_bundles():
    flood = make_flood(B)
    flood.spread(A.bundle(0))
    flood.spread_member(A.member())
    assert flood.collect() == [(B.id, Members((A.member(),))), (B.id, A.updates(0))]


def test_a_statement_goes_neither_to_its_source_nor_to_its_subject():
    flood = make_flood(B, C, D)
    flood.spread_member(C.member(), source=B.id)
    assert flood.collect() == [(D.id, Members((C.member(),)))]


def test_nothing_is_queued_for_a_neighbour_that_is_gone():
    flood = make_flood(B)
    flood.disconnect(B.id)
    flood.disconnect(B.id)
    flood.spread(A.bundle(0))
    assert flood.collect() == []


def test_a_neighbour_that_reconnects_is_asked_anew_what_it_holds():
    flood = make_flood(B)
    flood.spread(A.bundle(0))
    flood.connect(B.id, ())
    flood.offer(B.id, [A.bundle(0)])
    assert flood.collect() == [(B.id, A.updates(0))]


@given(steps=st.lists(st.integers(0, 9)), heard=st.sets(st.integers(0, 9)), collects=st.sets(st.integers(0, 9)))
def test_over_one_link_no_bundle_goes_twice(steps, heard, collects):
    flood = make_flood(B)
    sent = []
    for step in heard:
        flood.heard(B.id, A.bundle(step))
    for k, step in enumerate(steps):
        flood.spread(A.bundle(step))
        if k in collects:
            sent += flood.collect()
    sent += flood.collect()
    bundles = [bundle.step for _, message in sent if isinstance(message, Updates) for bundle in message.bundles]
    assert sorted(bundles) == sorted(set(steps) - heard)
