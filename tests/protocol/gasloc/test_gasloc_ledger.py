import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.protocol.gasloc.ledger import Account, Ledger, LedgerEntry
from seedflood.protocol.swarm.outputs import Outbox, Outputs

A, B = 7, 2**64 - 1
DIGEST, OTHER = bytes(range(32)), bytes(32)


class Journal:
    """What outlives a ledger."""

    def __init__(self):
        self.records = {}
        self.open()

    def open(self):
        self.outbox = Outbox(Outputs)
        self.ledger = Ledger(self.outbox)
        self.ledger.recall(self.records)
        return self.ledger

    def keep(self):
        out = self.outbox.take()
        assert out.is_durable or not out.records
        self.records |= dict(out.records)

    def reopen(self):
        self.keep()
        return self.open()


@pytest.fixture
def journal():
    return Journal()


@given(
    head=st.tuples(st.integers(-1, 2**40), st.binary(min_size=32, max_size=32), st.integers(-1, 2**40)),
    entries=st.lists(
        st.builds(
            LedgerEntry,
            st.integers(0, 2**40),
            st.integers(1, 2**16 - 1),
            st.binary(min_size=32, max_size=32),
            st.integers(0, 2**40),
        )
    ),
)
def test_an_account_is_read_as_it_was_written(head, entries):
    account = Account(*head, entries)
    assert Account.unpack(account.packed()) == account


def test_what_was_offered_is_durable_and_known_again(journal):
    journal.ledger.offer(A, 4, DIGEST)
    journal.ledger.offer(B, 9, OTHER)
    assert journal.reopen().last_round == 9


def test_two_things_are_never_offered_for_one_round(journal):
    journal.ledger.offer(A, 4, DIGEST)
    journal.ledger.offer(A, 4, DIGEST)
    ledger = journal.reopen()
    for round_ in (4, 3):
        with pytest.raises(AssertionError, match="two offers"):
            ledger.offer(A, round_, OTHER)


def test_several_changes_of_a_turn_are_one_record(journal):
    journal.ledger.offer(A, 4, DIGEST)
    journal.ledger.decide(A, 4, 1, OTHER)
    (record,) = journal.outbox.outputs.records
    assert Account.unpack(record.value).mixed_round == 4


def test_a_doubt_is_known_until_it_is_settled(journal):
    journal.ledger.prepare(A, 4, 1, DIGEST)
    ledger = journal.reopen()
    assert [(origin, entry.round, entry.theirs) for origin, entry in ledger.doubts()] == [(A, 4, DIGEST)]
    ledger.settle(A, ledger.doubt(A), is_mixed=False)
    assert journal.reopen().doubts() == []


def test_a_second_doubt_of_a_partner_is_a_mistake(journal):
    journal.ledger.prepare(A, 4, 1, DIGEST)
    with pytest.raises(AssertionError, match="one doubt"):
        journal.ledger.prepare(A, 5, 1, DIGEST)


def test_a_decision_is_answered_as_long_as_anyone_may_ask(journal):
    journal.ledger.decide(A, 4, 1, DIGEST)
    assert journal.ledger.checkpointed(journal.ledger.take_serial()) == [(A, 4)]
    ledger = journal.reopen()
    assert ledger.has_mixed(A, 4)
    assert not ledger.has_mixed(A, 3)
    assert not ledger.has_mixed(B, 4)


def test_parts_that_a_checkpoint_lacks_are_added_again_and_others_are_not(journal):
    ledger = journal.ledger
    ledger.decide(A, 1, 1, DIGEST)
    first = ledger.take_serial()
    ledger.decide(B, 2, 1, DIGEST)
    ledger.prepare(A, 3, 2, DIGEST)
    ledger = journal.reopen()
    lacking = ledger.restored(first)
    assert [(origin, entry.round) for origin, entry in lacking] == [(B, 2)]
    ledger = journal.reopen()
    assert sorted((origin, entry.round) for origin, entry in ledger.restored(0)) == [(A, 1), (B, 2)]


def test_a_part_that_was_added_again_counts_into_the_next_checkpoint(journal):
    journal.ledger.take_serial()
    journal.ledger.decide(A, 1, 1, DIGEST)
    ledger = journal.reopen()
    assert [entry.round for _, entry in ledger.restored(0)] == [1]
    serial = ledger.take_serial()
    ledger = journal.reopen()
    assert ledger.restored(serial) == []
    assert ledger.serial == serial + 1


def test_a_settled_doubt_counts_into_the_next_checkpoint(journal):
    ledger = journal.ledger
    ledger.prepare(A, 1, 1, DIGEST)
    before = ledger.take_serial()
    ledger.settle(A, ledger.doubt(A), is_mixed=True)
    assert ledger.checkpointed(before) == []
    assert ledger.checkpointed(ledger.take_serial()) == [(A, 1)]


def test_a_doubt_outlives_checkpoints(journal):
    journal.ledger.prepare(A, 1, 1, DIGEST)
    assert journal.ledger.checkpointed(journal.ledger.take_serial()) == []
    assert journal.reopen().doubt(A) is not None


def test_parameters_of_another_replica_lack_nothing(journal):
    ledger = journal.ledger
    ledger.decide(A, 1, 1, DIGEST)
    ledger.prepare(B, 2, 1, DIGEST)
    assert ledger.replaced() == [(B, 2)]
    serial = ledger.take_serial()
    ledger = journal.reopen()
    assert ledger.restored(serial) == []
    assert ledger.doubts() == []


def test_a_checkpoint_from_before_the_end_still_has_its_parts_after_it(journal):
    ledger = journal.ledger
    ledger.decide(A, 1, 1, DIGEST)
    before = ledger.take_serial()
    ledger.replaced()
    assert journal.reopen().restored(before) == []


def test_records_of_others_are_left_alone():
    journal = Journal()
    journal.records = {b"something else": b"?"}
    assert journal.open().last_round == -1


def test_the_weight_is_that_of_the_end_with_more_partners():
    assert LedgerEntry(0, 1, DIGEST).weight == 1 / 2
    assert LedgerEntry(0, 4, DIGEST).weight == 1 / 5
