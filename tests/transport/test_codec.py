"""The codec keeps every message, keeps its size, and turns every other byte string into a PeerError."""

import contextlib
import dataclasses
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.errors import PeerError
from seedflood.protocol.frontier import RANGES_MAX, Frontier, Held, sendable
from seedflood.protocol.origin import NAME_PATTERN, STEP_MAX
from seedflood.protocol.seedflood.bundles import (
    BUNDLE_BYTES_MAX,
    BUNDLE_STEP_MAX,
    LOSS_MAX,
    SCALAR_MAX,
    Bundle,
    Updates,
    UpdateValue,
    make_bundle,
)
from seedflood.protocol.seedflood.messages import (
    BlockDigests,
    ClosedEpoch,
    EpochDigest,
    Equivocation,
    FrontierDigest,
    ReplicaDigest,
    Standing,
    Vote,
    Votes,
)
from seedflood.protocol.swarm.messages import (
    ALGORITHM_BYTES_MAX,
    INCARNATION_MAX,
    NEIGHBOURS_MAX,
    OPAQUE_BYTES_MAX,
    Goodbye,
    Hello,
    Member,
    Members,
    Opaque,
    Ping,
    Pong,
)
from seedflood.protocol.swarm.roster import ENTRIES_MAX, HOLES_MAX, ROLES, SECONDS_MAX, SERIAL_MAX, Cut, Entry, Roster
from seedflood.transport import codec
from seedflood.transport.codec import EpochPart, FrameEncoder, Pull, PullEnd, PullMore, PullPart, decode, encode
from seedflood.wire import flood_pb2 as pb

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

u64 = st.integers(0, 2**64 - 1)
steps = st.integers(0, STEP_MAX - 64)
bundle_steps = st.integers(0, BUNDLE_STEP_MAX)
signatures = st.binary(min_size=64, max_size=64)
digests = st.binary(min_size=32, max_size=32)
probes = st.tuples(st.integers(0, LOSS_MAX), st.integers(-SCALAR_MAX, SCALAR_MAX))


@st.composite
def bundles(draw: st.DrawFn, told: st.SearchStrategy[UpdateValue] = probes) -> Bundle:
    step = draw(bundle_steps)
    return make_bundle(
        draw(u64),
        step,
        tuple(draw(st.lists(told, min_size=1, max_size=draw(st.sampled_from([1, 5, 64]))))),
        draw(st.sampled_from([0, 0, min(step, 7), min(step, 2**32 - 1)])),
        draw(signatures),
    )


def batches(told: st.SearchStrategy[UpdateValue]) -> st.SearchStrategy[Updates]:
    return st.lists(bundles(told), min_size=1, max_size=8).map(lambda some: Updates(tuple(some)))


members = st.builds(
    Member,
    public_key=st.binary(min_size=32, max_size=32),
    name=st.from_regex(NAME_PATTERN, fullmatch=True),
    incarnation=st.integers(0, INCARNATION_MAX),
    version=u64,
    neighbours=st.lists(u64, max_size=5).map(tuple),
    first_step=st.integers(0, STEP_MAX),
    last_step=st.none() | st.integers(-1, STEP_MAX),
    hop_milliseconds=st.integers(0, 2**32 - 1),
    algorithm=st.binary(max_size=ALGORITHM_BYTES_MAX),
    signature=signatures,
)


@st.composite
def frontiers(draw: st.DrawFn) -> tuple[Held, ...]:
    frontier = Frontier()
    for origin in draw(st.lists(u64, max_size=3)):
        for first in draw(st.lists(st.integers(0, 60) | steps, max_size=6)):
            frontier.add(origin, first, first + draw(st.integers(0, 9)))
    return frontier.held()


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    edges = sorted(draw(st.sets(st.integers(0, STEP_MAX), max_size=8).filter(lambda found: len(found) % 2 == 0)))
    held = list(zip(edges[::2], edges[1::2], strict=True))
    held = [span for span in held if span[1] < STEP_MAX]
    return Cut.keeping(held, draw(st.integers(0, STEP_MAX)), draw(st.binary(min_size=32, max_size=32)))


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    keys = draw(st.lists(st.binary(min_size=32, max_size=32), max_size=5, unique=True))
    times = st.none() | st.integers(0, SECONDS_MAX)
    entries = []
    for k, key in enumerate(keys):
        first, last = draw(times), draw(times)
        last = last if first is None or last is None else max(first, last)
        roles = tuple(draw(st.sets(st.sampled_from(ROLES))))
        cut = draw(st.none() | cuts()) if not roles else None
        since, until = draw(st.integers(0, SERIAL_MAX)), draw(st.none() | st.integers(0, SERIAL_MAX))
        entries.append(Entry(f"host{k}", key, roles, first, last, cut, since, until))
    return Roster(draw(st.integers(1, SERIAL_MAX)), tuple(entries), draw(signatures))


said = st.just((3, EpochDigest(bytes(32), bytes(32)))) | st.tuples(steps, st.builds(EpochDigest, digests, digests))
votes = st.lists(
    st.tuples(u64, said, signatures, steps).map(lambda vote: Vote(vote[0], *vote[1], *vote[2:])), max_size=5
).map(tuple)


def ballot(epoch: int = 1, serial: int = 1, count: int = 1, voters: int = 1) -> bytes:
    return struct.pack(">QQ64xH", epoch, serial, count) + bytes(72 * voters)


def test_votes_that_say_the_same_say_it_once() -> None:
    some = [Vote(origin, 7, EpochDigest(bytes(32), bytes(32)), bytes(64)) for origin in range(100)]
    other = Vote(100, 7, EpochDigest(bytes(32), b"\1" * 32), bytes(64))
    assert sum(map(len, encode(Votes((*some, other))))) < 100 * (64 + 8) + 300


finite = st.floats(allow_nan=False, allow_infinity=False)
answer_parts = st.one_of(
    st.sampled_from([probes, st.binary(min_size=50, max_size=50)]).flatmap(batches),
    st.lists(members, min_size=1, max_size=4).map(lambda some: Members(tuple(some))),
    st.builds(Standing, frontiers(), digests),
    st.builds(
        EpochPart,
        st.integers(0, STEP_MAX),
        st.none() | frontiers(),
        st.binary(max_size=100),
        st.booleans(),
        votes,
    ),
    st.builds(Opaque, st.binary(min_size=1, max_size=100)),
)
messages = st.one_of(
    answer_parts,
    votes.filter(len).map(Votes),
    st.builds(
        Hello,
        run_id=st.binary(min_size=32, max_size=32),
        base_digest=st.binary(max_size=32),
        member=members,
        members=st.lists(members, max_size=3).map(tuple),
        frontier=frontiers(),
        protocol_version=st.integers(0, 2**32 - 1),
        roster=st.none() | rosters(),
        form=st.binary(max_size=100),
    ),
    rosters(),
    st.builds(
        FrontierDigest,
        frontier_digest=st.binary(min_size=32, max_size=32),
        before=st.integers(0, STEP_MAX),
        is_complete=st.booleans(),
        members_digest=st.binary(max_size=32),
    ),
    st.builds(ReplicaDigest, digests, digests),
    st.builds(
        BlockDigests,
        st.lists(st.tuples(u64, steps, steps, st.integers(0, 64), st.binary(min_size=17, max_size=17)), max_size=3).map(
            tuple
        ),
    ),
    bundles()
    .map(lambda one: Equivocation(one, one.with_signature(bytes(63) + b"x")))
    .filter(lambda proof: proof.one != proof.other),
    st.builds(Ping, finite),
    st.builds(Pong, finite),
    st.builds(Goodbye, st.text(max_size=100).filter(str.isprintable)),
    st.builds(Pull, u64, frontiers()),
    st.builds(PullEnd, u64, st.booleans()),
    st.builds(PullMore, u64),
    st.builds(PullPart, st.integers(1, 2**64 - 1), answer_parts),
)


@settings(RELAXED)
@given(messages)
def test_what_is_encoded_is_decoded(message: codec.LinkMessage) -> None:
    (frame,) = encode(message)
    assert decode(frame) == message


@settings(RELAXED)
@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_peer_error(data: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode(data)


@settings(RELAXED)
@given(messages, st.data())
def test_damaged_frames_raise_nothing_but_peer_error(message: codec.LinkMessage, data: st.DataObject) -> None:
    frame = bytearray(encode(message)[0])
    for at in data.draw(st.lists(st.integers(0, max(0, len(frame) - 1)), min_size=1, max_size=4)):
        if frame:
            frame[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PeerError):
        decode(bytes(frame))


def bundle(origin: int = 2**63 + 5, step: int = 3000, updates: int = 1, skipped: int = 0) -> Bundle:
    probes = tuple((LOSS_MAX - k, (-1) ** k * (5 << 20)) for k in range(updates))
    return make_bundle(origin, step, probes, skipped, bytes(range(64)))


def updates_frame(*origins: int, data: bytes = b"") -> bytes:
    return pb.Frame(updates=pb.Updates(origins=origins, bundles=data)).SerializeToString()


def member_frame(**changes: object) -> bytes:
    right = {"public_key": bytes(32), "name": "a", "incarnation": 1, "signature": bytes(64)}
    return pb.Frame(members=pb.Members(members=[pb.Member(**(right | changes))])).SerializeToString()


def pull_frame(**changes: object) -> bytes:
    return pb.Frame(pull=pb.Pull(id=1, frontier=pb.Frontier(**changes))).SerializeToString()


def wire(**kind: object) -> bytes:
    return pb.Frame(**kind).SerializeToString()


def test_the_right_columns_are_accepted() -> None:
    one, other = make_bundle(1, 10, ((7, -4),)), make_bundle(2, 11, (b"xyz",))
    assert decode(updates_frame(1, 2, data=one.data + other.data)) == Updates((one, other))
    assert decode(member_frame()) == Members((Member(bytes(32), "a", 1, signature=bytes(64)),))
    assert decode(pull_frame(origins=[4, 5], marks=[10, 2])) == Pull(1, (Held(4, 10), Held(5, 2)))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xff", "frame"),
        (bytes(codec.FRAME_BYTES_MAX + 1), "oversize"),
        (updates_frame(1, data=b""), "columns"),
        (updates_frame(1, data=bytes(64)), "columns"),
        (updates_frame(data=make_bundle(1, 10, ((7, -4),)).data), "columns"),
        (updates_frame(1, data=make_bundle(1, 10, ((7, -4),), skipped=11).data), "limit"),
        (updates_frame(*[1] * 4097), "limit"),
        (member_frame(public_key=bytes(31)), "limit"),
        (member_frame(name=""), "name"),
        (member_frame(name="a b"), "name"),
        (member_frame(name="a\n"), "name"),
        (member_frame(name="a" * 64), "name"),
        (member_frame(neighbours=range(NEIGHBOURS_MAX + 1)), "limit"),
        (member_frame(incarnation=2**64 - 1), "limit"),
        (member_frame(first_step=STEP_MAX + 1), "limit"),
        (member_frame(last_step=-2), "limit"),
        (member_frame(last_step=STEP_MAX + 1), "limit"),
        (member_frame(signature=b""), "limit"),
        (member_frame(algorithm=bytes(ALGORITHM_BYTES_MAX + 1)), "limit"),
        (wire(votes=b"x"), "columns"),
        (wire(votes=ballot(voters=0)), "columns"),
        (wire(votes=ballot(count=0, voters=0)), "columns"),
        (wire(votes=ballot(count=2)), "columns"),
        (wire(votes=ballot() + ballot()[:-1]), "columns"),
        (wire(votes=ballot(count=4097, voters=4097)), "limit"),
        (wire(votes=ballot() * 4097), "limit"),
        (wire(votes=ballot(epoch=STEP_MAX + 1)), "limit"),
        (wire(votes=ballot(serial=STEP_MAX + 1)), "limit"),
        (wire(block_digests=pb.BlockDigests(origins=[1])), "columns"),
        (wire(block_digests=pb.BlockDigests(fingerprints=bytes(17))), "columns"),
        (wire(block_digests=pb.BlockDigests(origins=[1] * 4097)), "limit"),
        (wire(equivocation=pb.Equivocation()), "columns"),
        (wire(equivocation=pb.Equivocation(origin=1, bundles=2 * make_bundle(1, 10, ((7, -4),)).data)), "limit"),
        (pull_frame(origins=[1]), "columns"),
        (pull_frame(origins=[1], marks=[1], range_counts=[1], ranges=[1]), "columns"),
        (pull_frame(origins=[1, 1], marks=[1, 2]), "limit"),
        (pull_frame(origins=[1], marks=[STEP_MAX + 2]), "limit"),
        (pull_frame(origins=[1], marks=[1], range_counts=[1], ranges=[0, 1]), "limit"),
        (pull_frame(origins=[1], marks=[1], range_counts=[1], ranges=[1, 2**64 - 1]), "limit"),
        (pull_frame(origins=[1], marks=[1], range_counts=[16_385], ranges=[1] * 32_770), "limit"),
        (pull_frame(origins=range(64), marks=[1] * 64, range_counts=[1024] * 64, ranges=[1] * 131_072), "limit"),
        (pull_frame(origins=range(16_385), marks=[1] * 16_385), "limit"),
        (pull_frame(origins=[1], marks=[1, 1]), "columns"),
        (wire(members=pb.Members(members=[pb.Member()] * 257)), "limit"),
        (wire(members=pb.Members(members=[pb.Member(neighbours=range(1024))] * 33)), "limit"),
        (wire(hello=pb.Hello(run_id=bytes(32), members=[pb.Member()] * 257)), "limit"),
        (wire(algorithm=b""), "limit"),
        (wire(algorithm=b"", answers=1), "limit"),
        (wire(algorithm=bytes(OPAQUE_BYTES_MAX + 1)), "limit"),
        (wire(ping=pb.Ping(sent_at=float("nan"))), "limit"),
        (wire(pong=pb.Pong(sent_at=float("inf"))), "limit"),
        (wire(frontier_digest=pb.FrontierDigest(frontier_digest=b"x")), "limit"),
        (wire(frontier_digest=pb.FrontierDigest(frontier_digest=bytes(32), members_digest=bytes(33))), "limit"),
        (wire(replica_digest=pb.ReplicaDigest(frontier_digest=bytes(32))), "limit"),
        (wire(replica_digest=pb.ReplicaDigest(replica_digest=bytes(32))), "limit"),
        (wire(standing=pb.Standing()), "limit"),
        (wire(standing=pb.Standing(replica_digest=bytes(33))), "limit"),
        (wire(standing=pb.Standing(frontier=pb.Frontier(origins=[1]), replica_digest=bytes(32))), "columns"),
        (wire(epoch_part=pb.EpochPart(epoch=STEP_MAX + 1)), "limit"),
        (wire(epoch_part=pb.EpochPart(data=bytes(codec.EPOCH_PART_BYTES_MAX + 1))), "limit"),
        (wire(epoch_part=pb.EpochPart(frontier=pb.Frontier(origins=[1]))), "columns"),
        (wire(epoch_part=pb.EpochPart(certificate=b"x")), "columns"),
        (wire(hello=pb.Hello()), "limit"),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        decode(frame)
    assert caught.value.reason == reason


def test_a_frame_kind_of_a_newer_peer_is_skipped() -> None:
    assert decode(b"\xa2\x06\x03abc") is None
    assert decode(b"") is None


def test_a_usual_statement_is_read_once_and_kept_once_however_often_it_comes() -> None:
    usual = Member(bytes(32), "a", 1, signature=bytes(64))
    long = dataclasses.replace(usual, neighbours=tuple(range(100)))
    told = [decode(encode(Members((*before, usual, long)))[0]) for before in ([], [usual], [long])]
    members = [message.members[-2:] for message in told if isinstance(message, Members)]
    assert members == [(usual, long)] * 3
    assert [len({id(member) for member in column}) for column in zip(*members, strict=True)] == [1, 3]


def test_many_bundles_become_frames_within_the_limits() -> None:
    many = Updates(tuple(bundle(step=k, updates=64) for k in range(10_000)))
    frames = encode(many)
    assert len(frames) == 3
    assert max(map(len, frames)) < codec.FRAME_BYTES_MAX
    assert tuple(one for frame in frames for one in decode(frame).bundles) == many.bundles


def test_many_payloads_become_frames_within_the_limits() -> None:
    sizes = [1, 2000, 28_000, BUNDLE_BYTES_MAX]
    many = Updates(tuple(make_bundle(1, k, (bytes(sizes[k % 4]),), 0, bytes(64)) for k in range(200)))
    frames = encode(many)
    assert max(map(len, frames)) < codec.FRAME_BYTES_MAX // 2
    assert tuple(one for frame in frames for one in decode(frame).bundles) == many.bundles


def test_the_largest_bundle_fits_a_frame_whatever_stands_beside_it() -> None:
    largest = Updates((make_bundle(1, 5, (bytes(BUNDLE_BYTES_MAX // 64),) * 64, 0, bytes(64)),))
    (frame,) = encode(largest)
    assert decode(frame) == largest


def test_a_hello_with_many_members_continues_in_members_frames() -> None:
    one = Member(bytes(32), "n" * 63, 1, neighbours=tuple(range(100)), signature=bytes(64))
    hello = Hello(bytes(32), bytes(32), one, members=(one,) * 5000)
    frames = encode(hello)
    assert max(map(len, frames)) < codec.FRAME_BYTES_MAX
    first, *rest = map(decode, frames)
    assert dataclasses.replace(first, members=()) == dataclasses.replace(hello, members=())
    assert first.members + tuple(member for more in rest for member in more.members) == hello.members


def test_of_a_hello_of_another_run_nothing_is_read_that_may_be_long() -> None:
    one = Member(bytes(32), "n", 1, signature=bytes(64))
    hello = Hello(bytes(32), bytes(64), one, members=(one,) * 9, frontier=(Held(1, 5),), form=b"form")
    (frame,) = encode(hello)
    assert decode(frame, hello.run_id) == decode(frame) == hello
    assert decode(frame, bytes([1]) * 32) == Hello(hello.run_id, hello.base_digest, one)


def test_the_largest_roster_fits_a_first_frame_beside_the_largest_frontier_and_statements() -> None:
    cut, name = Cut(((STEP_MAX - 1, STEP_MAX),), STEP_MAX, bytes(32)), "n" * 59
    said = SECONDS_MAX, SECONDS_MAX
    entries = tuple(
        Entry(f"{name}{k:04}", k.to_bytes(32, "big"), roles, *said, removed, SERIAL_MAX, SERIAL_MAX)
        for k in range(ENTRIES_MAX)
        for roles, removed in ([((), cut)] if k < HOLES_MAX else [(ROLES, None)])
    )
    roster = Roster(SERIAL_MAX, entries, bytes(64))
    one = Member(bytes(32), "n" * 63, 1, neighbours=tuple(range(100)), signature=bytes(64))
    frontier = tuple(
        Held(origin << 40, 500, tuple((k << 20, (k << 20) + (1 << 19)) for k in range(1, 1000)))
        for origin in range(500)
    )
    first = encode(Hello(bytes(32), bytes(32), one, (one,) * 300, sendable(frontier), roster=roster))[0]
    assert 800_000 < len(first) < codec.HELLO_BYTES_MAX
    assert decode(first).roster == roster


def roster_frame(entry: dict[str, object] | None = None, **changes: object) -> bytes:
    right: dict[str, object] = {"serial": 1, "signature": bytes(64)}
    entries = [pb.RosterEntry(**({"public_key": bytes(32), "name": "a", "roles": 1} | entry))] if entry else []
    return wire(roster=pb.Roster(entries=entries, **(right | changes)))


@pytest.mark.parametrize(
    "frame",
    [
        roster_frame(serial=0),
        roster_frame(serial=SERIAL_MAX + 1),
        roster_frame(signature=bytes(63)),
        roster_frame({"public_key": bytes(31)}),
        roster_frame({"name": "no name"}),
        roster_frame({"roles": 8}),
        roster_frame({"not_before": SECONDS_MAX + 1}),
        roster_frame({"not_before": 2, "not_after": 1}),
        roster_frame({"roles": 0, "cut": pb.Cut(holes=[1], content=bytes(32))}),
        roster_frame({"roles": 0, "cut": pb.Cut(holes=[1, 2], content=bytes(32))}),
        roster_frame({"roles": 0, "cut": pb.Cut(holes=[1, STEP_MAX], content=bytes(31))}),
        roster_frame({"roles": 0, "cut": pb.Cut(holes=[1, STEP_MAX], since=STEP_MAX + 1, content=bytes(32))}),
        roster_frame({"roles": 1, "cut": pb.Cut(holes=[1, STEP_MAX], content=bytes(32))}),
        wire(roster=pb.Roster(serial=1, signature=bytes(64), entries=[pb.RosterEntry(name="a")] * (ENTRIES_MAX + 1))),
    ],
)
def test_a_roster_out_of_its_bounds_is_refused(frame: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        decode(frame)
    assert caught.value.reason == "limit"


def test_a_frontier_too_large_for_a_frame_claims_less() -> None:
    beyond = tuple((k * 1000, k * 1000 + 1) for k in range(1, 1000))
    frontier = tuple(Held(origin, 500, beyond) for origin in range(200))
    (frame,) = encode(Pull(1, frontier))
    pull = decode(frame)
    assert isinstance(pull, Pull)
    assert pull.frontier == sendable(frontier) != frontier


def test_a_frontier_with_more_ranges_of_an_origin_than_peers_accept_claims_the_first_of_them() -> None:
    """It was told in full, and every peer refused the node for ever."""
    beyond = tuple((2 * k, 2 * k) for k in range(1, 3000))
    decoded = decode(encode(Pull(1, (Held(5, 1, beyond),)))[0])
    assert decoded == Pull(1, (Held(5, 1, beyond[:RANGES_MAX]),))


def test_a_frontier_with_too_many_origins_claims_less() -> None:
    (frame,) = encode(Pull(1, tuple(Held(origin, 500) for origin in range(20_000))))
    assert decode(frame) == Pull(1, tuple(Held(origin, 500) for origin in range(16_384)))


def test_a_frontier_that_coefficients_stand_for_never_claims_less() -> None:
    frontier = tuple(Held(origin, 0, ((3000, 3999),)) for origin in range(16_384))
    part = EpochPart(3, frontier, b"", is_last=True)
    (frame,) = encode(part)
    assert decode(frame) == part


@pytest.mark.parametrize("neighbours", [0, 100, NEIGHBOURS_MAX])
def test_many_statements_become_frames_within_the_limits(neighbours: int) -> None:
    one = Member(bytes(32), "n" * 63, 1, neighbours=tuple(range(neighbours)), signature=bytes(64))
    frames = encode(Members((one,) * 1000))
    assert [member for frame in frames for member in decode(frame).members] == [one] * 1000


def test_a_closed_epoch_has_no_frame_of_its_own() -> None:
    with pytest.raises(AssertionError):
        encode(ClosedEpoch(1, (), b""))


@pytest.mark.parametrize("size", [0, OPAQUE_BYTES_MAX + 1])
def test_a_message_of_an_algorithm_that_every_peer_would_refuse_is_not_sent(size: int) -> None:
    with pytest.raises(AssertionError):
        encode(Opaque(bytes(size)))


def test_the_largest_message_of_an_algorithm_is_one_frame() -> None:
    largest = Opaque(bytes(OPAQUE_BYTES_MAX))
    (frame,) = encode(largest)
    assert decode(frame) == largest


def test_an_update_costs_less_than_90_bytes_and_less_than_25_when_five_share_a_signature() -> None:
    batch = tuple(bundle(origin=2**64 - 1 - k) for k in range(64))
    assert len(encode(Updates(batch))[0]) / 64 < 90
    shared = tuple(bundle(origin=2**64 - 1 - k, updates=5) for k in range(64))
    assert len(encode(Updates(shared))[0]) / 64 / 5 < 25
    assert len(encode(Updates(batch[:1]))[0]) < 100


def test_a_message_that_goes_to_several_links_is_encoded_once() -> None:
    encoder = FrameEncoder()
    first, second = Ping(1.0), Ping(2.0)
    frames = encoder.encode(first)
    assert frames == encode(first)
    assert encoder.encode(first) is frames
    assert encoder.encode(second) == encode(second)
    assert encoder.encode(first) == encode(first)


def test_a_goodbye_is_one_line_that_steers_no_terminal() -> None:
    assert decode(encode(Goodbye("\x1b[2Jbye\n2026-01-01 error"))[0]) == Goodbye("?[2Jbye?2026-01-01 error")


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, OPAQUE_BYTES_MAX])
def test_a_message_of_an_algorithm_is_spelled_as_protobuf_spells_it(size):
    data = bytes(range(256)) * (size // 256 + 1)
    assert encode(Opaque(data[:size])) == [wire(algorithm=data[:size])]


def test_what_follows_a_message_of_an_algorithm_counts_as_it_does_for_protobuf():
    said = wire(algorithm=b"said")
    assert decode(said + wire(algorithm=b"later")) == Opaque(b"later")
    assert decode(said + wire(ping=pb.Ping(sent_at=2.0))) == Ping(2.0)
    assert decode(said + wire(answers=3)) == PullPart(3, Opaque(b"said"))
    assert decode(b"\x92\x01\x84\x00said") == Opaque(b"said"), "a length in more bytes than it needs"
    assert decode(b"\x92\x01\x84\x80\x80\x80\x00said") == Opaque(b"said")
    for cut_off in (said[:1], said[:2], said[:3], said[:-1], said + b"\x92"):
        with pytest.raises(PeerError):
            decode(cut_off)
