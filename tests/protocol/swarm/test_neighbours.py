from origins import A, B, C, D

from seedflood.protocol.origin import STEP_MAX
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


def test_what_a_neighbour_tells_us_it_is_not_told():
    neighbours = linked(B, C)
    neighbours.spread(D.member(version=2))
    neighbours.receive(B.id, D.member(version=1))
    neighbours.receive(C.id, D.member(version=2))
    assert queued(neighbours) == {B.id: Members((D.member(version=2),))}


def test_a_newer_statement_stands_instead_of_those_that_wait():
    neighbours = linked(B)
    neighbours.spread(D.member(version=0, first_step=STEP_MAX))
    neighbours.spread(D.member(version=1))
    neighbours.spread(D.member(version=2))
    assert queued(neighbours) == {B.id: Members((D.member(version=2),))}


def test_a_statement_without_steps_does_not_stand_instead_of_a_last_word():
    neighbours = linked(B)
    neighbours.spread(D.member(version=1))
    neighbours.spread(D.member(version=2, first_step=STEP_MAX))
    assert queued(neighbours) == {B.id: Members((D.member(version=1), D.member(version=2, first_step=STEP_MAX)))}


def test_statements_wait_until_one_of_them_is_urgent():
    neighbours = linked(B)
    neighbours.spread(C.member())
    assert neighbours.take(B.id, is_urgent=True) is None
    neighbours.spread(A.member(), is_urgent=True)
    assert neighbours.take(B.id, is_urgent=True) == Members((C.member(), A.member()))


def test_nothing_is_urgent_about_nothing():
    neighbours = linked(B)
    neighbours.offer(B.id, [])
    neighbours.spread(C.member())
    assert neighbours.take(B.id, is_urgent=True) is None


def test_news_is_gathered_for_all_but_those_who_have_told_it():
    neighbours = linked(B, C, D)
    neighbours.gather([1, 2], source=B.id)
    neighbours.gather([2, 3])
    neighbours.receive_gathered(C.id, [2, 9])
    assert [neighbours.take_gathered(peer.id) for peer in (B, C, D, B)] == [[2, 3], [1, 3], [1, 2, 3], []]
