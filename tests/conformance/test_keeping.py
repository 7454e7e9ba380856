"""Whatever stands behind `seams.Journal` keeps statements and records alike: sqlite, with the tables of SeedFlood and
without, and memory. One of them in the place of another must make no difference to a node."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.errors import DiskFullError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.journal import Journal
from seedflood.storage.seedflood.journal import BundleJournal
from simulation.journal import MemoryJournal
from simulation.seedflood.journal import MemoryBundleJournal

RUN, BASE = b"r" * 32, b"b" * 32


class Owner:
    def writing(self):
        pass

    def kept(self, bundles):
        pass


class Memory:
    """A journal in memory, with a disk that may be full."""

    def __init__(self, journal):
        self.journal = journal

    def fill(self, is_full):
        self.journal.is_full = is_full

    def close(self):
        pass


class OnDisk:
    """A file that may not grow."""

    def __init__(self, journal):
        self.journal = journal

    def fill(self, is_full):
        connection = self.journal._store.connection
        ((pages,),) = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages if is_full else 1 << 20}")

    def close(self):
        self.journal.close()


MAKERS = {
    "sqlite": lambda folder: OnDisk(Journal.open(folder / "journal", RUN, BASE)),
    "sqlite with bundles": lambda folder: OnDisk(BundleJournal.open(folder / "journal", RUN, BASE, refresh_period=6)),
    "memory": lambda folder: Memory(MemoryJournal(Owner())),
    "memory with bundles": lambda folder: Memory(MemoryBundleJournal(6, Owner())),
}

members = st.builds(
    Member,
    public_key=st.sampled_from([b"a" * 32, b"b" * 32]),
    name=st.just("name"),
    incarnation=st.integers(0, 2),
    version=st.integers(0, 2),
    first_step=st.sampled_from([0, STEP_MAX]),
    signature=st.just(bytes(64)),
)
values = st.binary(max_size=40) | st.integers(0, 9000).map(bytes)
records = st.builds(Record, st.sampled_from([b"a", b"b", b"\0", b"k" * 64]), values)
turns = st.tuples(
    st.sampled_from(["open", "durable", "commit"]), st.lists(members, max_size=3), st.lists(records, max_size=4)
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(turns, max_size=8))
@pytest.mark.parametrize("kind", MAKERS)
def test_the_newest_of_each_name_is_there(kind, script):
    newest, kept = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        place = MAKERS[kind](Path(folder))
        for what, said, noted in script:
            place.journal.keep(said, noted, durable=what == "durable")
            if what == "commit":
                place.journal.commit()
            for one in said:
                name = one.origin, one.has_spoken
                if name not in newest or newest[name].age <= one.age:
                    newest[name] = one
            for key, value in noted:
                kept.pop(key, None)
                kept[key] = value
            assert sorted(place.journal.members(), key=str) == sorted(newest.values(), key=str)
            assert list(place.journal.records().items()) == list(kept.items())
        place.close()


@pytest.mark.parametrize("kind", MAKERS)
def test_a_full_disk_undoes_the_open_group_and_nothing_before_it(kind, tmp_path):
    member, newer = (Member(b"a" * 32, "name", 1, version, signature=bytes(64)) for version in (1, 2))
    large = Record(b"b", bytes(1 << 20))
    place = MAKERS[kind](tmp_path)
    place.journal.keep([member], [Record(b"a", b"1")], durable=False)
    place.journal.commit()
    place.journal.keep([newer], [Record(b"a", b"2"), Record(b"c", b"3")], durable=False)
    place.fill(True)
    with pytest.raises(DiskFullError):
        place.journal.keep([], [large], durable=True)
    assert place.journal.members() == [member]
    assert place.journal.records() == {b"a": b"1"}
    place.fill(False)
    place.journal.keep([newer], [large], durable=True)
    assert place.journal.members() == [newer]
    assert place.journal.records() == {b"a": b"1", large.key: large.value}
    place.close()
