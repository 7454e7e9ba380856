from hypothesis import given
from hypothesis import strategies as st
from nodes import hear, linked, sent_bundles
from origins import A, B, C, D, E

from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.swarm.messages import Members


def collect(flood):
    return [(peer.id, updates) for peer in (B, C, D, E) if peer.id in flood._queues for updates in flood.take(peer.id)]


def make_flood(*peers, frontier=()):
    flood = Flood()
    for peer in peers:
        flood.connect(peer.id, frontier)
    return flood


def test_a_bundle_goes_to_every_neighbour():
    flood = make_flood(B, C)
    flood.spread([A.bundle(0)])
    assert collect(flood) == [(B.id, A.updates(0)), (C.id, A.updates(0))]
    assert collect(flood) == []


def test_all_neighbours_are_given_one_batch():
    """So that it is encoded once."""
    flood = make_flood(B, C, frontier=[D.held(9)])
    flood.spread([A.bundle(9), A.bundle(10)])
    (_, first), (_, second) = collect(flood)
    assert first is second


def test_a_bundle_does_not_go_back_to_where_it_came_from():
    flood = make_flood(B, C)
    flood.spread([A.bundle(0)], B.id)
    assert collect(flood) == [(C.id, A.updates(0))]


def test_a_bundle_does_not_go_to_a_neighbour_whose_hello_held_it():
    flood = make_flood(B, frontier=[A.held(1)])
    flood.spread([A.bundle(0)])
    flood.offer(B.id, [A.bundle(0), A.bundle(1)])
    assert collect(flood) == [(B.id, A.updates(1))]


def test_a_bundle_goes_to_a_neighbour_that_holds_only_some_of_its_steps():
    flood = make_flood(B, frontier=[A.held(2)])
    flood.spread([A.bundle(3, skipped=2)])
    assert len(collect(flood)) == 1


def test_what_is_spread_waits_in_order_until_it_is_collected():
    flood = make_flood(B)
    for step in range(3):
        flood.spread([A.bundle(step)])
    assert collect(flood) == [(B.id, A.updates(0)), (B.id, A.updates(1)), (B.id, A.updates(2))]


def test_nothing_is_queued_for_a_neighbour_that_is_gone():
    flood = make_flood(B)
    flood.disconnect(B.id)
    flood.disconnect(B.id)
    flood.spread([A.bundle(0)])
    assert collect(flood) == []


def test_a_neighbour_that_reconnects_is_asked_anew_what_it_holds():
    flood = make_flood(B)
    flood.spread([A.bundle(0)])
    flood.connect(B.id, ())
    flood.offer(B.id, [A.bundle(0)])
    assert collect(flood) == [(B.id, A.updates(0))]


@given(st.lists(st.tuples(st.sampled_from([B, C]), st.lists(st.integers(0, 9), max_size=4))), st.integers(0, 5))
def test_over_one_link_no_bundle_goes_twice_nor_back_to_where_it_came_from(frames, mark):
    node = linked(B, C, D)
    hear(node, B, Members((E.member(),)))
    node.connected(D.id, D.hello([E.held(mark)]), 0.0)
    sources = {}
    out = [node.collect()]
    for peer, steps in frames:
        for step in steps:
            sources.setdefault(step, peer)
        out.append(hear(node, peer, E.updates(*steps)))
    for peer in (B, C, D):
        steps = [bundle.step for one in out for bundle in sent_bundles(one, peer)]
        news = {step for step, source in sources.items() if source is not peer}
        assert sorted(steps) == sorted(step for step in news if peer is not D or step >= mark)
