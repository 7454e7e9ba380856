from origins import A, B, C, D

from seedflood.protocol.swarm.messages import Members
from seedflood.protocol.swarm.neighbours import Neighbours


def linked(*peers, **incarnations):
    neighbours = Neighbours()
    for peer in peers:
        neighbours.connect(peer.id, incarnations.get(peer.name, 0))
    return neighbours


def queued(neighbours):
    """What is taken for each of those for whom something is queued."""
    taken = {peer: neighbours.take(peer) for peer in neighbours}
    return {peer: members for peer, members in taken.items() if members is not None}


def test_a_statement_goes_to_every_neighbour_once():
    neighbours = linked(B, C)
    neighbours.spread(A.member())
    assert queued(neighbours) == {B.id: Members((A.member(),)), C.id: Members((A.member(),))}
    assert queued(neighbours) == {}


def test_a_statement_goes_neither_to_its_source_nor_to_the_process_that_made_it():
    neighbours = linked(B, D, C, cyd=1)
    neighbours.spread(C.member(incarnation=1), source=B.id)
    assert queued(neighbours) == {D.id: Members((C.member(),))}


def test_a_statement_that_another_process_made_with_its_key_is_news_to_a_neighbour():
    neighbours = linked(B, C, cyd=2)
    neighbours.spread(C.member(incarnation=1), source=B.id)
    assert queued(neighbours) == {C.id: Members((C.member(),))}


def test_what_is_offered_stands_instead_of_what_was_queued():
    neighbours = linked(B)
    neighbours.spread(A.member())
    neighbours.offer(B.id, [C.member(), D.member()])
    assert queued(neighbours) == {B.id: Members((C.member(), D.member()))}


def test_nothing_is_queued_for_a_neighbour_that_is_gone():
    neighbours = linked(B, C)
    neighbours.disconnect(B.id)
    neighbours.disconnect(B.id)
    neighbours.spread(A.member())
    assert list(queued(neighbours)) == [C.id]
    assert B.id not in neighbours
    assert len(neighbours) == 1
