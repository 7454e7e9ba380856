"""An answer that is cut into parts is the same when it is put together; parts in another order are refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import Updates, make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch, EpochDigest, Standing, Vote
from seedflood.protocol.swarm.messages import Members, Opaque
from seedflood.transport.answer import EPOCH_PART_BYTES, PULL_BUNDLES, AnswerItem, Assembly, cut
from seedflood.transport.codec import FRAME_BYTES_MAX, AnswerPart, EpochPart, PullPart, encode

FRONTIER = (Held(5, 0, ((3000, 3999),)), Held(6, 10))
STANDING = Standing(FRONTIER, bytes(32))

sizes = st.integers(0, 3 * EPOCH_PART_BYTES) | st.sampled_from([k * EPOCH_PART_BYTES for k in range(4)])
closed_epochs = st.builds(
    ClosedEpoch, st.integers(0, 9), st.just(FRONTIER), sizes.map(lambda size: random.Random(size).randbytes(size))
)
updates = st.integers(1, PULL_BUNDLES).map(lambda n: Updates(tuple(make_bundle(5, k, ((1, 1),)) for k in range(n))))
items = st.one_of(closed_epochs, updates, st.just(STANDING), st.just(Members(())), st.just(Opaque(b"some")))


def joined(parts: list[AnswerPart]) -> list[AnswerItem]:
    assembly = Assembly()
    whole = [item for part in parts if (item := assembly.join(part)) is not None]
    assembly.end()
    return whole


@given(st.lists(items, max_size=4))
def test_what_is_cut_is_put_together(answer: list[AnswerItem]) -> None:
    assert joined(list(cut(answer))) == answer


def test_many_updates_are_cut() -> None:
    bundles = tuple(make_bundle(5, k, ((1, 1),)) for k in range(2 * PULL_BUNDLES + 1))
    assert [len(part.bundles) for part in cut([Updates(bundles)])] == [PULL_BUNDLES, PULL_BUNDLES, 1]


def test_every_part_of_an_epoch_fits_a_frame_and_the_first_alone_has_frontier_and_certificate() -> None:
    frontier = tuple(Held(2**64 - 1 - k, 0, ((k, k + 999),)) for k in range(16_384))
    votes = (Vote(1, 3, EpochDigest(bytes(32), bytes(32)), bytes(64)),)
    first, *rest = parts = list(cut([ClosedEpoch(3, frontier, random.Random(0).randbytes(1_000_000), b"", votes)]))
    assert (first.frontier, first.certificate) == (frontier, votes)
    assert {(part.frontier, part.certificate) for part in rest} == {(None, ())}
    assert max(len(frame) for part in parts for frame in encode(PullPart(1, part))) < FRAME_BYTES_MAX


def piece(*, epoch: int = 3, is_first: bool = False, is_last: bool = False) -> EpochPart:
    return EpochPart(epoch, FRONTIER if is_first else None, b"some", is_last)


@pytest.mark.parametrize(
    "parts",
    [
        [piece()],
        [piece(is_last=True)],
        [piece(is_first=True, is_last=True), piece()],
        [piece(is_first=True), piece(is_first=True)],
        [piece(is_first=True), piece(epoch=4)],
        [piece(is_first=True), STANDING],
        [piece(is_first=True), Opaque(b"some")],
        [piece(is_first=True), piece()],
    ],
)
def test_parts_out_of_order_are_refused(parts: list[AnswerPart]) -> None:
    with pytest.raises(PeerError) as caught:
        joined(parts)
    assert caught.value.reason == "order"


def test_an_epoch_beyond_the_limit_is_refused() -> None:
    assembly = Assembly(8)
    assert assembly.join(piece(is_first=True)) is None
    assert assembly.join(piece(is_last=True)) == ClosedEpoch(3, FRONTIER, b"somesome")
    assembly.join(piece(is_first=True))
    assembly.join(piece())
    with pytest.raises(PeerError) as caught:
        assembly.join(piece(is_last=True))
    assert caught.value.reason == "limit"


def test_what_is_looked_through_in_vain_lets_others_have_a_turn() -> None:
    assert list(cut([Updates(()), STANDING])) == [None, STANDING]
