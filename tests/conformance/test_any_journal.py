"""What any algorithm keeps is there again in the same way, whether sqlite stands behind the seam or memory."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedflood.errors import JournalError
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.messages import Member
from seedflood.protocol.swarm.outputs import Record
from seedflood.storage.journal import Journal
from simulation.journal import MemoryJournal


class Sqlite:
    def __init__(self, folder):
        self.journal = Journal.open(Path(folder) / "journal", b"r" * 32, b"b" * 32)

    def fail(self, members, records):
        def until_it_breaks():
            yield from records
            raise OSError("disk I/O error")

        with pytest.raises(JournalError):
            self.journal.keep(members, until_it_breaks(), durable=True)

    def close(self):
        self.journal.close()


class Memory:
    def __init__(self, folder):
        self.journal = MemoryJournal(self)

    def writing(self):
        pass

    def fail(self, members, records):
        self.journal.is_full = True
        with pytest.raises(JournalError):
            self.journal.keep(members, records, durable=True)
        self.journal.is_full = False

    def close(self):
        pass


members = st.builds(
    Member,
    st.sampled_from([b"a" * 32, b"b" * 32]),
    st.just("h"),
    st.integers(1, 3),
    st.integers(0, 2),
    first_step=st.sampled_from([0, STEP_MAX]),
    signature=st.just(bytes(64)),
)
records = st.builds(Record, st.sampled_from([b"a", b"b", b"\0", b"k" * 64]), st.binary(max_size=40))
turns = st.lists(
    st.tuples(
        st.sampled_from(["keep", "keep durably", "fail", "commit"]),
        st.lists(members, max_size=3),
        st.lists(records, max_size=4),
    ),
    max_size=9,
)


@settings(deadline=None, max_examples=60)
@given(turns)
def test_both_hold_the_same_whatever_is_kept_committed_and_undone(script):
    with tempfile.TemporaryDirectory() as folder:
        both = Sqlite(folder), Memory(folder)
        for what, said, kept in script:
            for one in both:
                match what:
                    case "keep" | "keep durably":
                        one.journal.keep(said, kept, durable=what == "keep durably")
                    case "fail":
                        one.fail(said, kept)
                    case "commit":
                        one.journal.commit()
            sqlite, memory = (one.journal for one in both)
            assert list(memory.records().items()) == list(sqlite.records().items())
            assert set(memory.members()) == set(sqlite.members())
        for one in both:
            one.close()
