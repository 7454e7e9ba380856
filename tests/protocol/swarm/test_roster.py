"""The roster: what its signature covers, which edition counts, and who may do what at which time."""

import hashlib
from dataclasses import replace
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import pretend_signature, verify

from seedflood.protocol.origin import STEP_MAX, origin_id
from seedflood.protocol.swarm.roster import ENTRIES_MAX, HOLES_MAX, ROLES, SECONDS_MAX, SERIAL_MAX, Cut, Entry, Roster

OPERATOR, NAME = hashlib.sha256(b"operator").digest(), "second try"


def sign(message):
    return pretend_signature(OPERATOR, message)


def key(number):
    return hashlib.sha256(b"key %d" % number).digest()


def kept(edges):
    """Ranges of steps in order, none of which touches the next one."""
    edges = [3 * edge + place % 2 for place, edge in enumerate(sorted(edges))]
    return list(zip(edges[::2], edges[1::2], strict=False))


cuts = st.builds(
    Cut.keeping,
    st.sets(st.integers(0, 40), max_size=8).map(kept),
    st.integers(0, STEP_MAX),
    st.binary(min_size=32, max_size=32),
)


def other_cuts(cut):
    """That differ from this one in one field."""
    if cut is None:
        return []
    holes = ((0, STEP_MAX),) if cut.holes != ((0, STEP_MAX),) else ((1, STEP_MAX),)
    return [replace(cut, holes=holes), replace(cut, since=cut.since ^ 1), replace(cut, content=b"x" * 32), None]


NAMES = st.text(f"{ascii_letters}{digits}._-", min_size=1, max_size=9).filter(lambda name: name[0].isalnum())
times = st.none() | st.integers(0, SECONDS_MAX)
serials = st.just(0) | st.integers(0, SERIAL_MAX)


@st.composite
def entries(draw):
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    found = []
    for number, name in enumerate(names):
        first, last = sorted([draw(times), draw(times)], key=lambda one: -1 if one is None else one)
        first, last = (first, last) if first is not None else (None, last)
        roles = tuple(draw(st.sets(st.sampled_from(ROLES))))
        cut = draw(st.none() | cuts) if not roles else None
        found.append(Entry(name, key(number), roles, first, last, cut, draw(serials), draw(st.none() | serials)))
    return tuple(found)


rosters = st.builds(Roster, st.integers(1, SERIAL_MAX), entries())


@given(rosters, st.randoms())
def test_equal_lists_are_signed_alike_in_whatever_order_they_are_told(roster, random):
    shuffled = list(roster.entries)
    random.shuffle(shuffled)
    assert Roster(roster.serial, tuple(shuffled)) == roster
    signed = roster.signed(sign, OPERATOR, NAME)
    assert replace(signed, entries=tuple(shuffled)).is_signed(OPERATOR, NAME, verify)


@given(rosters, rosters)
def test_two_rosters_have_the_same_signed_bytes_only_if_they_are_equal(one, other):
    assert (one.signed_bytes(OPERATOR, NAME) == other.signed_bytes(OPERATOR, NAME)) == (one == other)


@given(rosters.filter(lambda roster: roster.entries))
def test_a_signature_covers_operator_run_serial_and_every_field_of_an_entry(roster):
    signed = roster.signed(sign, OPERATOR, NAME)
    first, rest = signed.entries[0], signed.entries[1:]
    assert signed.is_signed(OPERATOR, NAME, verify)
    assert not signed.is_signed(OPERATOR, NAME + " ", verify)
    assert not signed.is_signed(key(99), NAME, verify)
    changed = [
        replace(first, name="Z" * 20),
        replace(first, public_key=key(77)),
        replace(first, roles=("read",) if first.roles != ("read",) else (), cut=None),
        replace(first, roles=(), cut=Cut(((7, STEP_MAX),), 141, bytes(32))),
        *(replace(first, cut=one) for one in other_cuts(first.cut)),
        replace(first, not_before=0 if first.not_before is None else None),
        replace(first, not_after=SECONDS_MAX if first.not_after is None else None),
    ]
    others = [replace(signed, serial=signed.serial % SERIAL_MAX + 1), replace(signed, entries=rest)]
    others += [replace(signed, entries=(one, *rest)) for one in changed]
    assert not any(other.is_signed(OPERATOR, NAME, verify) for other in others)
    assert not replace(signed, signature=b"").is_signed(OPERATOR, NAME, verify)


@given(st.lists(rosters, min_size=1, max_size=6), st.randoms())
def test_all_hosts_choose_the_same_roster_in_whatever_order_they_hear_of_them(known, random):
    known = [replace(one, serial=one.serial % 3 + 1) for one in known]
    chosen = []
    for _ in range(2):
        random.shuffle(known)
        best = None
        for one in known:
            best = one if one.replaces(best, OPERATOR, NAME) else best
        chosen.append(best)
    assert chosen[0] == chosen[1]
    assert chosen[0].serial == max(one.serial for one in known)
    same = [one for one in known if one.serial == chosen[0].serial]
    order = [hashlib.sha256(one.signed_bytes(OPERATOR, NAME)).digest() for one in same]
    assert chosen[0] == same[order.index(min(order))]
    assert {one.contradicts(chosen[0]) for one in same if one != chosen[0]} <= {True}


@given(rosters)
def test_an_entry_is_found_by_its_origin_and_by_its_own_key_alone(roster):
    for entry in roster.entries:
        assert roster.get(origin_id(entry.public_key)) is roster.of_key(entry.public_key) is roster.named(entry.name)
    assert roster.get(origin_id(key(99))) is roster.of_key(key(99)) is roster.named("!") is None
    assert len(roster) == len(roster.entries)


def test_another_key_with_the_origin_id_of_an_entry_is_not_on_the_roster(monkeypatch):
    roster = Roster(1, (Entry("a", key(1)),))
    monkeypatch.setattr("seedflood.protocol.swarm.roster.origin_id", lambda _: origin_id(key(1)))
    assert roster.of_key(key(1)) is not None
    assert roster.of_key(key(2)) is None


def test_an_entry_counts_from_its_first_second_to_its_last_and_never_without_a_role():
    entry = Entry("a", key(1), not_before=100, not_after=200)
    assert [entry.is_valid(at) for at in (99.9, 100, 200.9, 201)] == [False, True, True, False]
    assert Entry("a", key(1)).is_valid(0.0)
    assert not replace(entry, roles=()).is_valid(150)
    assert replace(entry, roles=()).is_removed


def test_roles_have_one_order():
    assert Entry("a", key(1), ("read", "train", "read")).roles == ("train", "read")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": ""}, "is no name"),
        ({"name": "x" * 64}, "is no name"),
        ({"name": "a b"}, "is no name"),
        ({"public_key": b"short"}, "has 5 bytes and not 32"),
        ({"roles": ("king",)}, '"king" is no role'),
        ({"not_before": -1}, "out of range"),
        ({"not_after": SECONDS_MAX + 1}, "out of range"),
        ({"not_before": 7, "not_after": 6}, "ends before it begins"),
    ],
)
def test_an_entry_that_cannot_be_used_cannot_be_made(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(Entry("a", key(1)), **changes)


@pytest.mark.parametrize(
    ("serial", "made", "sentence"),
    [
        (0, (), "serial 0"),
        (SERIAL_MAX + 1, (), "serial"),
        (1, (Entry("a", key(1)), Entry("a", key(2))), "two entries have the name a"),
        (1, (Entry("b", key(1)), Entry("a", key(1))), "a and b have one key"),
    ],
)
def test_a_roster_that_cannot_be_used_cannot_be_made(serial, made, sentence):
    with pytest.raises(ValueError, match=sentence):
        Roster(serial, made)


def test_a_roster_has_a_bound_and_signatures_one_length():
    many = tuple(Entry(f"host{k}", key(k)) for k in range(ENTRIES_MAX))
    assert len(Roster(1, many).signed_bytes(OPERATOR, NAME)) < 1 << 19
    with pytest.raises(ValueError, match="more than 4096"):
        Roster(1, (*many, Entry("one-more", key(ENTRIES_MAX))))
    with pytest.raises(ValueError, match="64 bytes, and this one 3"):
        Roster(1, signature=b"abc")


def test_who_was_removed_stays_on_the_list_without_a_role_and_does_not_return():
    roster = Roster(3).adding(Entry("a", key(1)), Entry("b", key(2)))
    after = roster.removing(["a"])
    assert (roster.serial, after.serial) == (4, 5)
    assert [(entry.name, entry.roles) for entry in after.entries] == [("a", ()), ("b", ("train",))]
    with pytest.raises(ValueError, match="was removed, and does not return"):
        after.adding(Entry("again", key(1)))
    with pytest.raises(ValueError, match="that of b, which is on it"):
        after.adding(Entry("again", key(2)))
    again = after.adding(Entry("b", key(2), ("relay",), not_after=9))
    assert [(entry.name, entry.roles, entry.not_after) for entry in again.entries] == [
        ("a", (), None),
        ("b", ("relay",), 9),
    ]
    with pytest.raises(ValueError, match="two entries have the name b"):
        after.adding(Entry("b", key(3)))
    with pytest.raises(ValueError, match="a was removed already"):
        after.removing(["a"])
    with pytest.raises(ValueError, match="c is not on the roster"):
        after.removing(["c"])


@st.composite
def histories(draw):
    """Rosters that an operator makes one after the other, each with or without another host."""
    history = [
        Roster(1, tuple(Entry(f"h{k}", key(k), draw(st.sampled_from([("train",), ("relay",)]))) for k in range(3)))
    ]
    for number in range(3, 3 + draw(st.integers(0, 8))):
        newest = history[-1]
        present = [entry for entry in newest.entries if not entry.is_removed]
        entry = draw(st.sampled_from(present)) if present else None
        match draw(st.sampled_from(["add", "remove", "renew", "relay"])):
            case "remove" if entry is not None:
                history.append(newest.removing([entry.name]))
            case "renew" if entry is not None:
                history.append(newest.adding(replace(entry, not_after=number)))
            case "relay" if entry is not None:
                history.append(newest.adding(replace(entry, roles=("relay",))))
            case _:
                roles = draw(st.sampled_from([("train",), ("relay",)]))
                history.append(newest.adding(Entry(f"h{number}", key(number), roles)))
    return history


@given(histories())
def test_the_newest_roster_knows_who_could_train_by_each_earlier_one(history):
    for old in history:
        trainers = {entry.origin for entry in old.entries if "train" in entry.roles}
        for later in history[history.index(old) :]:
            assert later.voters(old.serial, old.serial) == [trainers]
    assert {old.changed_at for old in history} <= {0, *(old.serial for old in history)}
    changes = history[-1].voters(1, history[-1].serial)
    assert [one for k, one in enumerate(changes) if not k or one != changes[k - 1]] == changes
    assert history[-1].voters(history[-1].changed_at, history[-1].serial) == changes[-1:]


def test_who_may_no_longer_train_does_not_get_that_role_again():
    roster = Roster(1, (Entry("a", key(1)),)).adding(Entry("a", key(1), ("relay",)))
    with pytest.raises(
        ValueError, match="a lost the role to train, and does not get it again: give the host a new key"
    ):
        roster.adding(Entry("a", key(1)))
    assert Roster(1, (Entry("b", key(2), ("relay",)),)).adding(Entry("b", key(2))).named("b").trains_from == 2


def test_a_run_has_its_clients_from_the_first_roster_that_lists_as_many():
    roster = Roster(1, (Entry("a", key(1)),)).adding(Entry("b", key(2))).adding(Entry("c", key(3))).removing(["a"])
    assert [roster.full_at(clients) for clients in (1, 2, 3, 4)] == [0, 2, 3, None]


@given(st.sets(st.integers(0, 40), max_size=8).map(kept), st.integers(0, 130), st.integers(0, 9))
def test_a_cut_excludes_exactly_the_steps_that_it_does_not_keep(held, first, count):
    cut = Cut.keeping(held, 0, bytes(32))
    is_kept = [any(low <= step <= high for low, high in held) for step in range(first, first + count + 1)]
    assert cut.excludes(first, first + count) == (not all(is_kept))
    assert cut.excludes(STEP_MAX, STEP_MAX)


@pytest.mark.parametrize(
    "holes",
    [(), ((0, 4),), ((5, STEP_MAX), (7, 8)), ((3, 2), (4, STEP_MAX)), ((1, 4), (4, STEP_MAX)), ((-1, STEP_MAX),)],
)
def test_a_cut_that_cannot_be_used_cannot_be_made(holes):
    with pytest.raises(ValueError, match="must follow each other, and the last one must end"):
        Cut(holes, 0, bytes(32))


def test_a_host_is_cut_off_once_it_is_removed_and_only_once():
    cut, roster = Cut(((9, STEP_MAX),), 8, bytes(32)), Roster(1, (Entry("a", key(1)), Entry("b", key(2))))
    for name, sentence in (("a", "a is not removed yet"), ("c", "c is not on the roster")):
        with pytest.raises(ValueError, match=sentence):
            roster.cutting(name, cut)
    after = roster.removing(["a"]).cutting("a", cut)
    assert (after.serial, after.named("a").cut, after.named("b").cut) == (3, cut, None)
    with pytest.raises(ValueError, match="a cut is final"):
        after.cutting("a", cut)
    with pytest.raises(ValueError, match="a was removed already"):
        after.removing(["a"])


def test_a_roster_without_cuts_is_signed_as_ever_and_cuts_have_a_limit():
    assert Roster(1, (Entry("a", key(1), ()),)).signed_bytes(OPERATOR, NAME).startswith(b"seedflood roster 1\0")
    many = (*((2 * k, 2 * k) for k in range(HOLES_MAX)), (STEP_MAX, STEP_MAX))
    with pytest.raises(ValueError, match=f"more than {HOLES_MAX} holes"):
        Roster(1, (Entry("a", key(1), (), cut=Cut(many, 0, bytes(32))),))
