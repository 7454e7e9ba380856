import pytest
from gossip import Bytes, Memory

from seedflood.errors import DiskFullError, PeerError
from seedflood.protocol.gasloc.messages import Chunk
from seedflood.protocol.gasloc.transfer import RETRY_SECONDS, SENT_BYTES_SPARE, Receiving, Sending, key_of


def make_receiving(size=1000):
    content = Bytes(bytes(range(256)) * (size // 256 + 1))
    return content, Receiving(content.digest, size, Memory(), 0.0)


def test_nothing_is_sent_before_it_is_accepted():
    assert Sending(Bytes(bytes(1000))).next_chunk(100) is None


def test_pieces_follow_each_other_from_where_it_was_asked_for():
    content = Bytes(bytes(range(250)))
    sending = Sending(content)
    sending.accept(60)
    chunks = list(iter(lambda: sending.next_chunk(100), None))
    assert [(chunk.offset, len(chunk.data)) for chunk in chunks] == [(60, 100), (160, 90)]
    assert b"".join(bytes(chunk.data) for chunk in chunks) == content.data[60:]


def test_after_a_break_nothing_is_sent_before_it_is_asked_for_again():
    sending = Sending(Bytes(bytes(1000)))
    sending.accept(0)
    sending.next_chunk(100)
    sending.pause()
    assert sending.next_chunk(100) is None
    assert not sending.is_done


def test_bytes_that_are_sent_again_are_not_taken_again():
    sending = Sending(Bytes(bytes(1000)))
    for start in (0, 100, 0, 999):
        sending.accept(start)
        sending.next_chunk(200)
    assert sending.taken == 301


def test_who_wants_no_more_says_so_and_may_think_better_of_it():
    sending = Sending(Bytes(bytes(1000)))
    sending.accept(0)
    sending.accept(1000)
    assert sending.is_done
    assert sending.next_chunk(100) is None
    sending.accept(900)
    assert not sending.is_done
    assert sending.next_chunk(1000) is not None


def test_who_asks_for_bytes_beyond_the_end_is_refused():
    with pytest.raises(PeerError, match="asked to go on at byte 1,001 of 1,000"):
        Sending(Bytes(bytes(1000))).accept(1001)


def test_whoever_asks_for_the_same_again_and_again_gets_no_more():
    size, sent = 8 << 20, 0
    sending = Sending(Bytes(bytes(size)))
    for _ in range(20):
        sending.accept(0)
        sent += sum(len(chunk.data) for chunk in iter(lambda: sending.next_chunk(size), None))
    assert 4 * size + SENT_BYTES_SPARE < sent <= 5 * size + SENT_BYTES_SPARE


def test_a_chunk_that_is_not_the_next_one_is_passed_over():
    content, receiving = make_receiving()
    assert receiving.take(Chunk(key_of(content.digest), 0, content.data[:500]), 0.0)
    for offset in (0, 400, 501):
        assert not receiving.take(Chunk(key_of(content.digest), offset, content.data[:100]), 0.0)
    assert bytes(receiving.sink.data) == content.data[:500]


def test_a_chunk_beyond_the_end_is_refused():
    content, receiving = make_receiving()
    with pytest.raises(PeerError, match="beyond what was offered"):
        receiving.take(Chunk(key_of(content.digest), 900, bytes(101)), 0.0)


def test_what_an_earlier_transfer_brought_is_not_asked_for_again():
    sink = Memory()
    sink.write(bytes(300))
    assert Receiving(bytes(32), 1000, sink, 0.0).held == 300
    assert Receiving(bytes(32), 200, sink, 0.0).is_whole


def test_a_chunk_for_which_the_disk_has_no_space_is_asked_for_again_later():
    content, receiving = make_receiving()
    write = receiving.sink.write

    def refuse(data):
        raise DiskFullError("full")

    receiving.sink.write = refuse
    assert receiving.ask_at == float("inf")
    assert not receiving.take(Chunk(key_of(content.digest), 0, content.data[:500]), 7.0)
    assert (receiving.held, receiving.ask_at) == (0, 7.0 + RETRY_SECONDS)
    receiving.sink.write = write
    receiving.ask(11.0)
    assert receiving.ask_at == float("inf")
    assert receiving.take(Chunk(key_of(content.digest), 0, content.data[:500]), 11.0)


def test_throughput_counts_since_it_was_asked_for():
    content, receiving = make_receiving()
    receiving.take(Chunk(key_of(content.digest), 0, content.data[:500]), 1.0)
    receiving.ask(10.0)
    assert receiving.throughput(10.0) is None
    receiving.take(Chunk(key_of(content.digest), 500, content.data[500:1000]), 12.0)
    assert receiving.throughput(12.0) == 250.0


def test_a_key_is_the_beginning_of_a_digest():
    assert key_of(bytes(range(32))) == bytes(range(8))
