import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import DiskFullError
from seedflood.host import backlog as module
from seedflood.host.backlog import Backlog
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.messages import EpochDigest, FrontierDigest, Vote, Votes
from seedflood.protocol.seedflood.outputs import Outputs
from seedflood.protocol.swarm.messages import Member, Members

US, THEM, PEER = 1, 2, 7
US_KEY = b"k" * 32


def bundle(origin, step, skipped=0):
    return make_bundle(origin, step, ((step, 5),), skipped)


OURS, THEIRS = bundle(US, 0), bundle(THEM, 0)


def stuck(*bundles, members=()):
    """The disk was full when these should have been written."""
    backlog = Backlog(US)
    backlog.add(Outputs(list(members), bundles=list(bundles)))
    backlog.is_stuck = True
    return backlog


def vote(origin):
    return Vote(origin, 0, EpochDigest(b"f" * 32, b"s" * 32))


def test_what_was_written_is_forgotten():
    backlog = Backlog(US)
    backlog.add(Outputs(bundles=[OURS]))
    backlog.clear()
    backlog.is_stuck = True
    assert (backlog.unwritten, backlog.members) == ([], {})


def test_while_there_is_space_nothing_is_withheld():
    backlog = Backlog(US)
    backlog.add(Outputs(bundles=[OURS]))
    assert not backlog.holds_back(PEER, Updates((OURS,)))
    assert backlog.unwritten == []


@pytest.mark.parametrize("message", [Updates((THEIRS, OURS)), Votes((vote(THEM), vote(US)))])
def test_a_message_that_says_anything_of_ours_is_withheld(message):
    assert stuck(THEIRS, OURS).holds_back(PEER, message)


@pytest.mark.parametrize("message", [Updates((THEIRS,)), Votes((vote(THEM),)), FrontierDigest(b"d" * 32)])
def test_what_others_say_and_what_anybody_may_compute_is_sent(message):
    assert not stuck(THEIRS, OURS).holds_back(PEER, message)


def test_our_statement_is_withheld_unless_it_is_on_the_disk():
    kept, early = (Member(US_KEY, "ada", 1, version) for version in (0, 1))
    backlog = Backlog(kept.origin)
    backlog.add(Outputs([early]))
    backlog.is_stuck = True
    assert backlog.holds_back(PEER, Members((early,)))
    assert not backlog.holds_back(PEER, Members((kept,)))


def test_of_each_member_the_newest_statement_waits():
    first, second = (Member(US_KEY, "ada", 1, version) for version in (0, 1))
    backlog = stuck(members=[first])
    backlog.add(Outputs([second]))
    assert list(backlog.members.values()) == [second]


def test_what_was_withheld_is_released_once_and_in_order():
    backlog = stuck(OURS, bundle(US, 1))
    withheld = [(PEER, Updates((OURS,))), (PEER, Updates((bundle(US, 1),)))]
    assert all(backlog.holds_back(*one) for one in withheld)
    assert backlog.release() == withheld
    assert not backlog.is_stuck
    assert backlog.release() == []
    assert backlog.bundles == []


def test_more_than_can_be_remembered_ends_the_node(monkeypatch):
    monkeypatch.setattr(module, "UNSAVED_BUNDLES_MAX", 2)
    backlog = stuck(OURS, THEIRS)
    with pytest.raises(DiskFullError, match="free some space"):
        backlog.add(Outputs(bundles=[bundle(THEM, 1)]))


@given(messages=st.lists(st.lists(st.tuples(st.sampled_from([US, THEM]), st.integers(0, 9)), min_size=1), max_size=8))
def test_everything_is_sent_sooner_or_later_and_what_is_ours_only_later(messages):
    backlog = stuck()
    said = [Updates(tuple(bundle(*name) for name in names)) for names in messages]
    sooner = [one for one in said if not backlog.holds_back(PEER, one)]
    later = [one for _, one in backlog.release()]
    assert not any(one.origin == US for message in sooner for one in message.bundles)
    assert all(any(one.origin == US for one in message.bundles) for message in later)
    assert sorted(sooner + later, key=repr) == sorted(said, key=repr)
