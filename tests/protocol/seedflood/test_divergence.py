from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import A, B, C, D, replica

from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.divergence import (
    MEND_SECONDS_MAX,
    REBUILD_SECONDS_MAX,
    REBUILD_SECONDS_MIN,
    REMEMBERED,
    REPEATED_MAX,
    DivergenceDetector,
    HearsayDetector,
)
from seedflood.protocol.seedflood.messages import ReplicaDigest
from seedflood.protocol.seedflood.outputs import Outputs, Rebuild, TakeDigest
from seedflood.protocol.swarm.outputs import Outbox


class Watched:
    """A digest detector, and what it wants done."""

    def __init__(self):
        self.applied, self.neighbours, self.outbox = Frontier(), [], Outbox(Outputs)
        self.relays = set()
        self.divergence = DivergenceDetector(
            self.applied, self.neighbours, self.outbox, lambda origin: origin not in self.relays
        )

    def apply(self, held):
        """From now on exactly this is applied."""
        self.applied.__init__(held)

    def take(self, *held):
        self.apply(held)
        self.divergence.take()
        return self.outbox.take().orders

    def taken(self, *held, digest="same", neighbours=()):
        """Our digest is there: what does it tell of whom?"""
        self.neighbours[:] = [peer.id for peer in neighbours]
        return self.divergence.taken(replica(*held, digest=digest))

    def know(self, *held, digest="same"):
        self.take(*held)
        return self.divergence.taken(replica(*held, digest=digest))

    def heard(self, peer, *held, digest="same"):
        return self.divergence.received(peer.id, replica(*held, digest=digest))

    def compared(self, peer, is_equal, now=0.0):
        """Is it news that one is equal, where we are now?"""
        if self.divergence.latest is None:
            self.know(A.held(1))
        if peer.id not in self.neighbours:
            self.neighbours.append(peer.id)
        ours = self.divergence.latest or replica(A.held(1))
        said = ours if is_equal else ReplicaDigest(ours.frontier_digest, b"other".ljust(32))
        self.divergence.received(peer.id, said)
        return self.divergence.compared(peer.id, ours.frontier_digest, now)

    def said(self, peer, *held, digest="same", now=0.0):
        """A neighbour says this of a frontier that we know: is it news that it is equal?"""
        self.heard(peer, *held, digest=digest)
        return self.divergence.compared(peer.id, Frontier(held).digest(), now)

    def review(self, periods=2):
        """So many comparison periods end. What does the log say?"""
        for _ in range(periods):
            self.divergence.review(0.0)
        return [event.name for event in self.outbox.take().events]

    def agree(self, peer=B, now=0.0):
        return self.compared(peer, True, now)

    def doubt(self, *peers, now=0.0):
        for peer in peers or [B]:
            self.compared(peer, False, now)
        return [(event.name, event.level) for event in self.outbox.take().events]

    def rebuild(self, now, *held):
        self.apply(held)
        is_ordered = self.divergence.rebuild(now)
        orders = self.outbox.take().orders
        assert is_ordered == any(isinstance(order, Rebuild) for order in orders)
        return orders

    def rebuilt(self, is_changed, now=0.0):
        self.divergence.rebuilt(is_changed, now)
        return [(event.name, event.level) for event in self.outbox.take().events]


# Taking and telling


def test_a_digest_of_what_is_applied_is_taken_once():
    watched = Watched()
    assert watched.take(A.held(1)) == [TakeDigest(replica(A.held(1)).frontier_digest)]
    assert watched.take(A.held(1)) == []
    watched.taken(A.held(1))
    assert watched.take(A.held(1)) == []
    assert len(watched.take(A.held(2))) == 1


def test_a_digest_is_told_to_all_neighbours():
    watched = Watched()
    watched.take(A.held(1))
    watched.taken(A.held(1), neighbours=[B, C])
    said = replica(A.held(1))
    assert watched.outbox.take().send == [(B.id, said), (C.id, said)]


def test_the_last_digest_is_told_to_who_links_and_to_who_pulls():
    watched = Watched()
    assert (watched.divergence.latest, watched.divergence.standing) == (None, None)
    watched.know(A.held(1))
    watched.know(A.held(2), digest="newer")
    assert watched.divergence.latest == replica(A.held(2), digest="newer")
    assert watched.divergence.standing.frontier == (A.held(2),)
    assert watched.divergence.standing.replica_digest == watched.divergence.latest.replica_digest


# Comparing


@pytest.mark.parametrize("is_ours_first", [True, False])
@pytest.mark.parametrize("digest", ["same", "other"])
def test_whoever_is_second_compares(is_ours_first, digest):
    watched = Watched()
    if is_ours_first:
        assert watched.know(A.held(1)) == []
        assert watched.heard(B, A.held(1), digest=digest) is (digest == "same")
    else:
        assert watched.heard(B, A.held(1), digest=digest) is None
        assert watched.know(A.held(1)) == [(B.id, digest == "same")]


def test_digests_of_other_frontiers_say_nothing():
    watched = Watched()
    watched.know(A.held(1))
    assert watched.heard(B, A.held(2), digest="other") is None
    assert watched.know(A.held(3)) == []


def test_neighbours_are_compared_one_by_one():
    watched = Watched()
    watched.heard(B, A.held(1))
    watched.heard(C, A.held(1), digest="other")
    assert watched.know(A.held(1)) == [(B.id, True), (C.id, False)]


def test_it_is_known_at_which_frontier_a_neighbour_was_equal_last():
    watched = Watched()
    first, second = replica(A.held(1)).frontier_digest, replica(A.held(2)).frontier_digest
    watched.know(A.held(1))
    watched.heard(B, A.held(1))
    assert watched.divergence.is_equal_at(B.id, first)
    watched.know(A.held(2))
    watched.heard(B, A.held(2), digest="other")
    assert not watched.divergence.is_equal_at(B.id, second)
    watched.heard(B, A.held(2))
    assert watched.divergence.is_equal_at(B.id, second)
    assert not watched.divergence.is_equal_at(C.id, second)


def test_what_a_neighbour_said_is_forgotten_with_its_link():
    watched = Watched()
    watched.know(A.held(1))
    watched.heard(B, A.held(1))
    watched.heard(B, A.held(2))
    watched.divergence.forget(B.id)
    assert watched.know(A.held(2)) == []
    assert not watched.divergence.is_equal_at(B.id, replica(A.held(1)).frontier_digest)


def test_nodes_that_are_many_rounds_apart_still_compare_and_memory_is_bounded():
    watched = Watched()
    for step in range(3 * REMEMBERED):
        watched.heard(B, A.held(step + 1))
    assert watched.know(A.held(2 * REMEMBERED)) == []
    assert watched.know(A.held(2 * REMEMBERED + 1)) == [(B.id, True)]


@given(
    ours=st.permutations(range(1, 9)),
    theirs=st.permutations(range(1, 9)),
    order=st.lists(st.booleans(), min_size=16, max_size=16),
    wrong=st.sets(st.integers(1, 8)),
)
def test_in_any_order_every_pair_is_compared_and_rightly(ours, theirs, order, wrong):
    watched, ours, theirs, results = Watched(), list(ours), list(theirs), []
    for is_ours in order:
        if (is_ours and ours) or not theirs:
            results += [is_equal for _, is_equal in watched.know(A.held(ours.pop()))]
        else:
            step = theirs.pop()
            results.append(watched.heard(B, A.held(step), digest="other" if step in wrong else "same"))
    assert results.count(False) == len(wrong)
    assert results.count(True) == 8 - len(wrong)


# Doubts


def test_agreement_is_news_once_and_ends_a_doubt():
    watched = Watched()
    assert watched.agree()
    assert not watched.agree()
    watched.doubt()
    assert not watched.divergence.is_agreed
    assert watched.agree()
    assert not watched.divergence.is_doubted


def test_a_doubt_is_told_once_until_it_is_settled():
    watched = Watched()
    assert watched.doubt() == [("replicas differ", "error")]
    assert watched.doubt() == []
    watched.agree()
    assert watched.doubt() == [("replicas differ", "error")]


def test_who_is_not_in_doubt_rebuilds_nothing():
    watched = Watched()
    assert watched.rebuild(0.0, A.held(1)) == []
    watched.doubt()
    watched.agree()
    assert watched.rebuild(0.0, A.held(1)) == []


def test_a_replica_in_doubt_is_rebuilt_and_its_digest_taken_again():
    watched = Watched()
    watched.know(A.held(1))
    watched.doubt()
    key = replica(A.held(1)).frontier_digest
    assert watched.rebuild(0.0, A.held(1)) == [Rebuild((A.held(1),)), TakeDigest(key)]
    assert watched.divergence.is_rebuilding
    assert watched.divergence.latest is None


def test_a_digest_that_was_ordered_before_the_rebuild_does_not_count():
    watched = Watched()
    watched.take(A.held(1))
    watched.doubt()
    watched.rebuild(0.0, A.held(2))
    assert watched.taken(A.held(1), neighbours=[B]) == []
    assert watched.outbox.take().send == []
    assert watched.divergence.latest is None


def test_a_digest_of_the_same_frontier_that_was_taken_before_the_rebuild_does_not_count():
    watched = Watched()
    watched.take(A.held(1))
    watched.doubt()
    watched.rebuild(0.0, A.held(1))
    assert watched.taken(A.held(1), neighbours=[B]) == []
    assert watched.divergence.latest is None
    watched.rebuilt(True)
    watched.taken(A.held(1), neighbours=[B])
    assert watched.divergence.latest is not None


def test_nothing_is_agreed_while_a_rebuild_is_under_way():
    watched = Watched()
    watched.doubt()
    watched.rebuild(0.0)
    assert not watched.agree()
    watched.rebuilt(True)
    assert watched.agree()


@pytest.mark.parametrize(("is_changed", "level"), [(True, "error"), (False, "warning")])
def test_a_rebuild_tells_whether_the_replica_had_been_wrong(is_changed, level):
    watched = Watched()
    watched.doubt()
    watched.rebuild(0.0)
    assert watched.rebuilt(is_changed) == [("replica rebuilt", level)]
    assert not watched.divergence.is_rebuilding


def test_both_of_two_that_differed_agree_once_the_wrong_one_has_rebuilt():
    right, wrong = Watched(), Watched()
    for watched, digest, peer in ((right, "same", B), (wrong, "other", A)):
        watched.know(A.held(1), digest=digest)
        watched.doubt(peer)
        watched.rebuild(0.0, A.held(1))
        watched.rebuilt(digest == "other")
    right.taken(A.held(1))
    wrong.heard(A, A.held(1))
    assert wrong.taken(A.held(1)) == [(A.id, True)]
    assert right.heard(B, A.held(1)) is True


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_rebuild_settles_the_doubt_if_it_changed_nothing(has_changed):
    watched = Watched()
    watched.doubt()
    watched.rebuild(0.0)
    watched.rebuilt(has_changed)
    assert watched.divergence.is_doubted == has_changed
    assert watched.divergence.is_agreed != has_changed


def test_one_liar_among_the_neighbours_is_not_believed():
    watched = Watched()
    watched.agree(C)
    assert watched.doubt(B) == []
    assert watched.review() == []
    assert watched.rebuild(0.0) == []
    assert watched.divergence.is_agreed


def test_most_of_the_neighbours_are_believed_whatever_one_says():
    watched = Watched()
    watched.neighbours[:] = [A.id, B.id, C.id]
    assert watched.doubt(B) == []
    assert watched.doubt(C) == [("replicas differ", "error")]
    assert not watched.agree(A)
    assert watched.divergence.is_doubted


# Which words compare


def linked(*neighbours, relays=()):
    watched = Watched()
    watched.neighbours[:] = [peer.id for peer in neighbours]
    watched.relays |= {peer.id for peer in relays}
    return watched


def test_that_neighbours_were_equal_once_says_nothing_of_a_bit_that_has_flipped_since():
    watched = linked(B, C, D)
    watched.know(A.held(1))
    for peer in (B, C, D):
        watched.said(peer, A.held(1))
    watched.know(A.held(2), digest="flipped")
    watched.said(B, A.held(2))
    assert not watched.divergence.is_doubted  # the others may still speak of this frontier
    assert watched.review() == ["replicas differ"]
    assert watched.rebuild(0.0, A.held(2))


def test_most_neighbours_are_enough_at_once_and_nobody_else_is_waited_for():
    watched = linked(B, C, D)
    watched.know(A.held(2), digest="flipped")
    watched.said(B, A.held(2))
    watched.said(C, A.held(2))
    assert watched.divergence.is_doubted


def test_who_is_the_first_to_speak_of_a_frontier_is_believed_if_nobody_else_speaks_for_a_whole_period():
    watched = linked(B, C)
    watched.know(A.held(2), digest="flipped")
    assert watched.review(1) == []
    watched.said(B, A.held(2))
    assert watched.review(1) == []  # it may have spoken just now
    assert watched.review(1) == ["replicas differ"]


def test_of_words_that_wait_for_others_those_on_the_last_frontier_count():
    watched = linked(B, C)
    watched.know(A.held(1))
    watched.said(B, A.held(1), digest="other")
    watched.know(A.held(2))
    watched.said(C, A.held(2))
    assert watched.review() == []


def test_an_equal_word_on_an_earlier_frontier_ends_no_doubt():
    watched = linked(B, C, D)
    watched.know(A.held(1))
    watched.know(A.held(2), digest="flipped")
    watched.said(B, A.held(2))
    watched.said(C, A.held(2))
    assert not watched.said(D, A.held(1))
    assert watched.divergence.is_doubted


def test_one_neighbour_that_repeats_our_digest_ends_no_doubt():
    watched = linked(B, C, D)
    watched.know(A.held(2), digest="flipped")
    watched.said(B, A.held(2))
    watched.said(C, A.held(2))
    watched.know(A.held(3), digest="flipped")
    assert not watched.said(D, A.held(3), digest="flipped")
    assert watched.divergence.is_doubted
    assert watched.rebuild(0.0, A.held(3))


def test_what_a_relay_repeats_counts_for_nothing_beside_a_replica():
    """Seen in a ring: the relay repeated what the host itself had said, and that outvoted its only neighbour."""
    watched = linked(B, C, relays=[C])
    watched.know(A.held(2), digest="flipped")
    assert not watched.said(C, A.held(2), digest="flipped")
    assert not watched.divergence.is_agreed
    watched.said(B, A.held(2))
    assert watched.divergence.is_doubted


def test_a_host_behind_relays_alone_goes_by_what_they_repeat():
    watched = linked(C, relays=[C])
    watched.know(A.held(2), digest="flipped")
    watched.said(C, A.held(2))
    assert watched.divergence.is_doubted
    watched.rebuild(0.0, A.held(2))
    watched.rebuilt(True)
    watched.know(A.held(2))
    assert watched.said(C, A.held(2))
    assert not watched.divergence.is_doubted


def test_what_a_relay_repeats_ends_no_doubt_before_a_rebuild():
    """It may be our own word that comes back."""
    watched = linked(C, relays=[C])
    watched.know(A.held(2), digest="flipped")
    watched.said(C, A.held(2))
    watched.said(C, A.held(2), digest="flipped")
    assert watched.divergence.is_doubted


def test_a_neighbour_that_differed_is_looked_into_until_it_is_equal_at_a_later_frontier():
    watched = linked(B, C)
    watched.know(A.held(1))
    watched.said(B, A.held(1), digest="other")
    assert watched.divergence.unequal() == [B.id]
    watched.know(A.held(2))
    watched.said(B, A.held(2))
    assert watched.divergence.unequal() == []


def test_a_lone_liar_causes_a_few_rebuilds_and_ever_fewer():
    """64 bytes a second for 800 s; there were ten rebuilds, and the node ended with 70."""
    watched, rebuilds = Watched(), []
    for now in range(800):
        watched.doubt(now=now)
        if watched.rebuild(now):
            rebuilds.append(now)
            watched.rebuilt(False, now)
    assert rebuilds == [0, 60, 180, 420]
    assert not watched.divergence.is_doubted


def test_a_false_alarm_is_forgiven_after_as_long_a_time_without_another():
    watched, pauses = Watched(), []
    for now in (0.0, 60.0, 60.0 + 2 * 120.0):
        watched.doubt(now=now)
        assert watched.rebuild(now)
        watched.rebuilt(False, now)
        pauses.append(next(s for s in range(1000) if watched.divergence.credibility.counts(B.id, now + s)))
    assert pauses == [60, 120, 60]


def test_a_false_alarm_is_not_forgotten_with_the_link():
    watched = Watched()
    watched.doubt()
    watched.rebuild(0.0)
    watched.rebuilt(False)
    watched.divergence.forget(B.id)
    assert watched.doubt(now=1.0) == []
    assert watched.doubt(C, now=1.0) != []


def test_rebuilds_that_do_not_help_become_rare():
    watched, now, pauses = Watched(), 0.0, []
    for _ in range(15):
        before = now
        watched.doubt(now=now)
        while not watched.rebuild(now):
            now += REBUILD_SECONDS_MIN
        pauses.append(now - before)
        watched.rebuilt(True, now)
        assert watched.rebuild(now) == []
    assert pauses[:5] == [0.0, 1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == REBUILD_SECONDS_MAX


def test_a_replica_is_made_again_when_the_journal_has_changed_and_that_is_no_fault_of_anyone():
    watched = Watched()
    watched.doubt()
    watched.divergence.outdate(0.0)
    assert watched.rebuild(0.0)
    assert watched.rebuilt(True) == [("replica rebuilt", "info")]
    assert not watched.divergence.is_doubted
    assert watched.divergence.is_agreed  # one is as ready as the journal makes it, however often it changes
    assert watched.doubt(now=0.0) != []  # its word still counts


def test_a_digest_of_coefficients_that_are_not_those_of_the_journal_says_nothing():
    watched = Watched()
    watched.know(A.held(1))
    watched.take(A.held(2))
    watched.divergence.outdate(0.0)
    assert (watched.divergence.latest, watched.divergence.standing) == (None, None)
    assert watched.heard(B, A.held(1), digest="other") is None
    assert watched.take(A.held(3)) == []
    assert watched.taken(A.held(2)) == []
    assert watched.divergence.latest is None


def test_what_neighbours_said_meanwhile_is_compared_when_the_replica_was_made_again():
    watched = Watched()
    watched.divergence.outdate(0.0)
    watched.heard(B, A.held(1))
    watched.heard(C, A.held(1), digest="other")
    assert TakeDigest(Frontier([A.held(1)]).digest()) in watched.rebuild(0.0, A.held(1))
    watched.rebuilt(True)
    assert watched.taken(A.held(1)) == [(B.id, True), (C.id, False)]


def test_what_was_found_out_about_coefficients_that_are_outdated_counts_no_more():
    watched = Watched()
    watched.doubt(B)
    watched.divergence.outdate(0.0)
    assert watched.divergence.unequal() == []
    watched.rebuild(0.0)
    watched.rebuilt(True)
    assert not watched.divergence.is_doubted


def test_rebuilds_because_someone_contradicts_itself_all_the_time_become_rare():
    watched, rebuilds = Watched(), []
    for now in range(1000):
        watched.divergence.outdate(now)
        if watched.rebuild(now):
            rebuilds.append(now)
            watched.rebuilt(True, now)
    assert len(rebuilds) < 25
    assert rebuilds[-1] - rebuilds[-2] == MEND_SECONDS_MAX


def test_one_rebuild_is_under_way_at_a_time():
    watched = Watched()
    watched.doubt()
    watched.rebuild(0.0)
    assert watched.rebuild(1e6) == []


def test_a_digest_that_was_not_asked_for_is_no_digest_of_ours():
    watched = Watched()
    assert watched.divergence.taken(ReplicaDigest(b"x" * 32, b"y" * 32)) == []
    assert watched.divergence.latest is None


def test_a_relay_tells_nobody_what_that_one_has_said_itself():
    detector = HearsayDetector(Frontier(), [A.id, B.id], Outbox(Outputs))
    detector.received(A.id, replica(A.held(5)))
    assert detector.latest_for(A.id) is None
    assert detector.latest_for(B.id) == replica(A.held(5))


def talk_of_relays(words, said_max):
    """Three relays, each linked with the others, hear these words of hosts. Returns how many they say to each other."""
    relays = {peer.id: (Outbox(Outputs), {other.id for other in (A, B, C)} - {peer.id}) for peer in (A, B, C)}
    watches = {origin: HearsayDetector(Frontier(), others, outbox) for origin, (outbox, others) in relays.items()}
    said = deque((A.id, source, word) for source, word in words)
    for count in range(said_max):
        to, source, word = said.popleft()
        watches[to].received(source, word)
        said += [(other, to, message) for other, message in relays[to][0].take().send]
        if not said:
            return count + 1 - len(words)
    pytest.fail(f"they still talk: {len(said)} messages on their way")


def test_relays_in_a_ring_repeat_two_words_of_one_frontier_once_and_are_silent_then():
    """One may be a liar's, or of a replica that was rebuilt meanwhile."""
    words = [(7, replica(A.held(5), digest="right")), (8, replica(A.held(5), digest="wrong"))]
    talk_of_relays(words, 20)


@pytest.mark.parametrize("sources", [1, 100])
def test_relays_in_a_ring_are_silent_after_any_number_of_words(sources):
    words = [(k % sources, replica(A.held(5), digest=f"{k}")) for k in range(1000)]
    talk_of_relays(words, 2000)


def test_a_relay_repeats_few_words_of_one_neighbour_and_then_those_of_others():
    outbox = Outbox(Outputs)
    detector = HearsayDetector(Frontier(), (A.id, B.id, C.id), outbox)
    honest = replica(A.held(5), digest="right")
    for period in range(3):
        for k in range(1000):
            detector.received(A.id, replica(A.held(5), digest=f"wrong {period} {k}"))
        detector.received(B.id, honest)
        said = [word for to, word in outbox.take().send if to == C.id]
        assert len(said) == REPEATED_MAX + 1
        assert said[-1] == honest
        assert not detector.rebuild(2.0 * period)
