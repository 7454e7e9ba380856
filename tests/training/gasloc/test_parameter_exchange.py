import numpy
import pytest
import torch
from dense_gossip import arrived, sent
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.training.gasloc.encodings import ENCODINGS, PIECE, payload_size
from seedflood.training.gasloc.exchange import Arrival, Difference, Outgoing, begin_digest

NAMES = sorted(ENCODINGS)
NUMBERS = PIECE + 304


def some_values(seed=1, numbers=NUMBERS):
    return torch.randn(numbers, generator=torch.Generator().manual_seed(seed))


def residual(name, numbers=NUMBERS):
    return None if ENCODINGS[name].is_exact else torch.zeros(numbers, dtype=torch.bfloat16)


@pytest.mark.parametrize("name", NAMES)
def test_what_arrives_is_what_was_told(name):
    offer = Outgoing(some_values(), name, residual(name))
    arrival = arrived(offer)
    for index in range(len(offer.pieces)):
        assert torch.equal(arrival.sent(index), offer.sent(index))


@pytest.mark.parametrize("name", NAMES)
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=6), st.data())
def test_any_part_can_be_read_at_any_time(name, starts, data):
    offer = Outgoing(some_values(numbers=1008), name, residual(name, 1008))
    whole = sent(offer).tobytes()
    assert len(whole) == offer.size == payload_size(ENCODINGS[name], 1008)
    for start in starts:
        length = data.draw(st.integers(0, 5000))
        assert offer.read(start, length) == whole[start : start + length]


@pytest.mark.parametrize("name", NAMES)
def test_an_arrival_may_lie_in_a_file(tmp_path, name):
    offer = Outgoing(some_values(), name, residual(name))
    (tmp_path / "arrival").write_bytes(sent(offer))
    buffer = numpy.memmap(tmp_path / "arrival", dtype=numpy.uint8, mode="r+")
    arrival = Arrival(offer.numbers, name, buffer, offer.digest)
    arrival.check()
    assert torch.equal(arrival.sent(1), offer.sent(1))


def test_what_was_not_offered_does_not_pass_its_check():
    theirs = Outgoing(some_values(2), "float32")
    payload = sent(theirs)
    payload[-1] ^= 1
    with pytest.raises(PeerError, match="other parameters"):
        Arrival(NUMBERS, "float32", payload, theirs.digest).check()


def test_a_difference_is_ours_less_theirs_as_they_travelled():
    ours, theirs = Outgoing(some_values(1), "uint8"), Outgoing(some_values(2), "uint8")
    difference = Difference(ours, arrived(theirs))
    for index in range(2):
        assert torch.equal(difference.piece(index), ours.sent(index) - theirs.sent(index))


def test_exact_numbers_in_host_memory_are_not_copied():
    values_F = some_values()
    part = Outgoing(values_F, "float32").read(0, 8)
    values_F[0] = 7.0
    assert torch.frombuffer(bytearray(part), dtype=torch.float32)[0] == 7.0


def test_the_digest_tells_numbers_and_encodings_apart():
    values_F = some_values()
    changed_F = values_F.clone()
    changed_F[-1] = 9.0
    digests = {Outgoing(one, name, residual(name)).digest for one in (values_F, changed_F) for name in NAMES}
    assert len(digests) == 6
    assert {len(digest) for digest in digests} == {32}


@pytest.mark.parametrize("name", [name for name in NAMES if not ENCODINGS[name].is_exact])
def test_errors_do_not_pile_up_but_come_back(name):
    """Of a number that stays, what is told differs; its mean over rounds comes as close as one likes."""
    values_F, left_F, rounds = some_values(), residual(name), 64
    total_F = torch.zeros(NUMBERS, dtype=torch.float64)
    for _ in range(rounds):
        offer = Outgoing(values_F, name, left_F)
        for index, part in enumerate(offer.pieces):
            told_N = offer.sent(index)
            total_F[part] += told_N
            offer.settle(index, told_N)
    once = torch.cat([Outgoing(values_F, name).sent(index) for index in range(2)])
    first_error = (once - values_F).abs().max()
    assert (total_F / rounds - values_F).abs().max() < first_error / 20


@pytest.mark.parametrize("name", NAMES)
def test_an_offer_says_the_same_until_it_is_taken(name):
    offer = Outgoing(some_values(), name, residual(name))
    digest, payload = offer.digest, sent(offer)
    offer.sent(0)
    assert numpy.array_equal(sent(offer), payload)
    assert Outgoing(some_values(), name, residual(name)).digest == digest


@pytest.mark.parametrize(("encoding", "size"), [("float32", 4 * 64 + 4), ("float32", 4 * 64 - 1), ("uint8", 64)])
def test_parameters_of_another_size_are_refused(encoding, size):
    with pytest.raises(PeerError) as caught:
        Arrival(64, encoding, numpy.zeros(size, dtype=numpy.uint8), bytes(32))
    assert caught.value.reason == "size"


def test_other_bytes_than_offered_are_refused():
    offer = Outgoing(some_values(), "float32")
    arrival = Arrival(NUMBERS, "float32", sent(Outgoing(some_values(2), "float32")), offer.digest)
    with pytest.raises(PeerError) as caught:
        arrival.check()
    assert caught.value.reason == "digest"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, PIECE - 1, -1])
def test_numbers_that_are_not_finite_are_refused(name, bad, place):
    values_F = some_values()
    values_F[place] = bad
    with pytest.raises(PeerError) as caught:
        arrived(Outgoing(values_F, name, residual(name)))
    assert caught.value.reason == "parameters"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1.01, 1e3, 1e18, 1e38])
def test_numbers_that_are_too_large_together_are_refused(name, size):
    values_F = torch.full((NUMBERS,), 1.0)
    norm_max = 1.005 * NUMBERS**0.5
    arrived(Outgoing(values_F, name, residual(name)), norm_max=norm_max)
    with pytest.raises(PeerError) as caught:
        arrived(Outgoing(size * values_F, name, residual(name)), norm_max=norm_max)
    assert caught.value.reason == "parameters"


def test_a_range_of_a_block_that_overflows_is_refused():
    payload = ENCODINGS["uint8"].encode(torch.zeros(256))
    payload[4:8] = torch.tensor([3e38]).view(torch.uint8)
    payload[8:] = 255
    digest = begin_digest(ENCODINGS["uint8"], 256)
    digest.update(payload.numpy().data)
    arrival = Arrival(256, "uint8", payload.numpy(), digest.digest())
    with pytest.raises(PeerError) as caught:
        arrival.check()
    assert caught.value.reason == "parameters"
