import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import DiskFullError
from seedflood.host.seedflood import backlog as module
from seedflood.host.seedflood.backlog import BundleBacklog
from seedflood.protocol.seedflood.messages import Bundle, FrontierDigest, Updates
from seedflood.protocol.swarm.messages import Member

US, THEM, PEER = 1, 2, 7


def bundle(origin, step, skipped=0):
    return Bundle(origin, step, ((step, 5),), skipped)


OURS, THEIRS = bundle(US, 0), bundle(THEM, 0)


def stuck(*bundles, members=()):
    """The disk was full when these should have been written, the last time something of ours among them."""
    backlog = BundleBacklog(US)
    backlog.add(members, ())
    backlog.add_bundles(bundles, is_durable=True)
    backlog.is_stuck = True
    return backlog


def test_what_was_written_is_forgotten():
    backlog = BundleBacklog(US)
    backlog.add_bundles([OURS], is_durable=True)
    backlog.clear()
    backlog.is_stuck = True
    assert (backlog.bundles, backlog.members, backlog.first_unsaved) == ([], {}, None)
    assert backlog.sift(PEER, Updates((OURS,))) == Updates((OURS,))


def test_while_there_is_space_nothing_is_withheld():
    backlog = BundleBacklog(US)
    backlog.add_bundles([OURS], is_durable=True)
    assert backlog.sift(PEER, Updates((OURS,))) == Updates((OURS,))
    assert backlog.first_unsaved is None
    assert backlog.unwritten == []


def test_what_is_ours_is_withheld_and_what_is_not_is_sent():
    backlog = stuck(THEIRS, OURS)
    assert backlog.sift(PEER, Updates((THEIRS, OURS))) == Updates((THEIRS,))
    assert backlog.sift(PEER, Updates((OURS,))) is None
    assert backlog.unwritten == [THEIRS, OURS]


def test_what_was_ours_and_kept_before_is_sent():
    assert stuck(bundle(US, 1)).sift(PEER, Updates((OURS,))) == Updates((OURS,))


def test_messages_of_other_kinds_pass():
    message = FrontierDigest(b"d" * 32)
    assert stuck(OURS).sift(PEER, message) is message


def test_the_first_own_step_that_is_not_kept_counts_what_the_bundle_skips():
    assert stuck(THEIRS, bundle(US, 9, skipped=4), bundle(US, 10)).first_unsaved == 5


def test_of_each_member_the_newest_statement_waits():
    first, second = (Member(b"k" * 32, "ada", 1, version) for version in (0, 1))
    backlog = stuck(members=[first])
    backlog.add([second], ())
    assert list(backlog.members.values()) == [second]


def test_what_was_withheld_is_released_once_and_in_order():
    backlog = stuck(OURS, bundle(US, 1))
    backlog.sift(PEER, Updates((OURS,)))
    backlog.sift(PEER, Updates((bundle(US, 1),)))
    withheld = [(PEER, Updates((OURS,))), (PEER, Updates((bundle(US, 1),)))]
    assert backlog.release() == withheld
    assert not backlog.is_stuck
    assert backlog.release() == []
    assert backlog.bundles == []


def test_more_than_can_be_remembered_ends_the_node(monkeypatch):
    monkeypatch.setattr(module, "UNSAVED_BUNDLES_MAX", 2)
    backlog = stuck(OURS, THEIRS)
    with pytest.raises(DiskFullError, match="free some space"):
        backlog.add_bundles([bundle(THEM, 1)], is_durable=False)


@given(
    unsaved=st.sets(st.integers(0, 9)),
    messages=st.lists(st.lists(st.tuples(st.sampled_from([US, THEM]), st.integers(0, 9)), min_size=1), max_size=8),
)
def test_everything_is_sent_sooner_or_later_and_what_is_not_kept_only_later(unsaved, messages):
    backlog = stuck(*(bundle(US, step) for step in unsaved))
    sooner = []
    for names in messages:
        message = backlog.sift(PEER, Updates(tuple(bundle(*name) for name in names)))
        sooner += message.bundles if message is not None else []
    later = [one for _, message in backlog.release() for one in message.bundles]
    assert all(one.origin == US and one.step in unsaved for one in later)
    assert not any(one.origin == US and one.step in unsaved for one in sooner)
    assert sorted((one.origin, one.step) for one in sooner + later) == sorted(
        name for names in messages for name in names
    )
