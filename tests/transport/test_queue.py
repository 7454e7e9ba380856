"""The send queue: bounded, in order, and what is said is said in its newest form."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.protocol.seedflood.bundles import Bundle, Updates, make_bundle
from seedflood.protocol.seedflood.messages import FrontierDigest, ReplicaDigest
from seedflood.protocol.swarm.messages import Goodbye, Member, Members, Message, Opaque, Ping, Pong
from seedflood.transport.codec import Pull, PullMore
from seedflood.transport.queue import CONTROL_MAX, OPAQUE_OBJECT_BYTES, SendQueue

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores


def bundle(step: int) -> Bundle:
    return make_bundle(1, step, ((step, step),) * (1 + step % 3), 0, bytes(64))


def taken(queue: SendQueue) -> list[Message]:
    messages = []
    while (message := queue.take()) is not None:
        messages.append(message)
    return messages


def flat(messages: list[Message]) -> list[object]:
    return [one for message in messages for one in (message.bundles if isinstance(message, Updates) else [message])]


entries = st.lists(st.integers(0, 4) | st.just("digest"), max_size=60)


@settings(RELAXED)
@given(entries, st.integers(1, 8))
def test_what_comes_out_is_what_went_in_less_the_oldest_updates(script: list[object], bundles_max: int) -> None:
    queue = SendQueue(bundles_max)
    model: list[object] = []
    step = dropped = 0
    for entry in script:
        if entry == "digest":
            message: Message = FrontierDigest(bytes(32), before=step)
            model = [*(one for one in model if isinstance(one, Bundle)), message]
        else:
            message = Updates(tuple(bundle(step + k) for k in range(entry)))
            step += entry
            model += message.bundles
        queue.put(message)
        while sum(isinstance(one, Bundle) for one in model) > bundles_max:
            oldest = next(one for one in model if isinstance(one, Bundle))
            model.remove(oldest)
            dropped += len(oldest.probes)
    assert flat(taken(queue)) == model
    assert queue.dropped == dropped


def test_updates_between_two_control_messages_become_one_batch() -> None:
    queue = SendQueue()
    for message in (Updates((bundle(1),)), Updates((bundle(2),)), FrontierDigest(bytes(32)), Updates((bundle(3),))):
        queue.put(message)
    assert taken(queue) == [Updates((bundle(1), bundle(2))), FrontierDigest(bytes(32)), Updates((bundle(3),))]


def test_an_empty_batch_is_not_sent() -> None:
    queue = SendQueue()
    queue.put(Updates(()))
    assert queue.take() is None


def test_a_ping_overtakes_updates_and_a_goodbye_does_not() -> None:
    queue = SendQueue()
    for message in (Updates((bundle(1),)), Goodbye("over"), Ping(1.0)):
        queue.put(message)
    assert taken(queue) == [Ping(1.0), Updates((bundle(1),)), Goodbye("over")]


def test_urgent_messages_without_end_do_not_keep_the_others_waiting() -> None:
    queue = SendQueue()
    queue.put(Updates((bundle(1),)))
    queue.put(Goodbye("over"))
    out = []
    for k in range(4):
        queue.put(PullMore(k))
        out.append(queue.take())
    assert out == [PullMore(0), Updates((bundle(1),)), PullMore(1), Goodbye("over")]


def test_a_batch_fits_a_frame() -> None:
    queue = SendQueue()
    queue.put(Updates(tuple(map(bundle, range(10_000)))))
    assert [len(message.bundles) for message in taken(queue)] == [4096, 4096, 1808]


def payloads(first: int, count: int, size: int) -> Updates:
    """Bundles of so many bytes each."""
    around = len(make_bundle(1, first, (b"",)).data)
    return Updates(tuple(make_bundle(1, step, (bytes(size - around),)) for step in range(first, first + count)))


def test_payloads_leave_in_batches_of_64_kib_or_one_bundle() -> None:
    queue = SendQueue()
    for message in (payloads(0, 100, 2000), payloads(100, 3, 100_000), payloads(103, 1, 90), payloads(104, 1, 90)):
        queue.put(message)
    assert [len(message.bundles) for message in taken(queue)] == [32, 32, 32, 4, 1, 1, 1, 2]


def test_a_payload_that_goes_to_several_links_stays_one_object() -> None:
    queue, large = SendQueue(), payloads(0, 1, 200_000)
    queue.put(large)
    assert queue.take() is large


def test_payloads_that_are_not_read_give_way_by_bytes() -> None:
    queue = SendQueue(bytes_max=10_000)
    for step in range(20):
        queue.put(payloads(step, 1, 1000))
    assert [bundle.step for bundle in flat(taken(queue))] == list(range(10, 20))
    assert queue.dropped == 10


opaque_entries = st.lists(st.integers(1, 400) | st.sampled_from(["digest", "payload"]), max_size=60)


@settings(RELAXED)
@given(opaque_entries, st.integers(0, 2000))
def test_messages_of_an_algorithm_leave_in_order_less_the_oldest(script: list[object], bytes_max: int) -> None:
    queue = SendQueue(bytes_max=bytes_max)
    model: list[object] = []
    dropped = 0
    for k, entry in enumerate(script):
        message: Message
        if entry == "digest":
            message = FrontierDigest(bytes(32), before=k)
            model = [one for one in model if not isinstance(one, FrontierDigest)] + [message]
        elif entry == "payload":
            message = payloads(k, 1, 300)
            model += message.bundles
        else:
            message = Opaque(k.to_bytes(2, "big") + bytes(int(entry)))
            model.append(message)
        queue.put(message)
        while sum(map(room_of, model)) > bytes_max:
            model.remove(next(one for one in model if room_of(one)))
            dropped += 1
    assert flat(taken(queue)) == model
    assert queue.dropped == dropped
    assert (queue._bytes, queue._batches) == (0, 0)


def room_of(one: object) -> int:
    if isinstance(one, Opaque):
        return len(one.data) + OPAQUE_OBJECT_BYTES
    return len(one.data) if isinstance(one, Bundle) else 0


def test_an_algorithm_that_says_much_to_a_peer_that_does_not_read_neither_fills_memory_nor_ends_the_link() -> None:
    queue = SendQueue()
    for _ in range(200_000):
        queue.put(Opaque(b"x"))
    assert len(queue._waiting) <= (16 << 20) // OPAQUE_OBJECT_BYTES
    assert not queue.is_stuck
    assert queue.dropped + len(taken(queue)) == 200_000


def test_a_message_of_an_algorithm_that_goes_to_several_links_stays_one_object() -> None:
    queue, message = SendQueue(), Opaque(b"xyz")
    queue.put(message)
    assert queue.take() is message


def member(name: str, version: int = 0) -> Member:
    return Member(name.encode().ljust(32), name, 1, version)


def test_of_what_replaces_itself_only_the_newest_waits() -> None:
    queue = SendQueue()
    for k in range(3):
        for message in (
            Ping(float(k)),
            Pong(float(k)),
            Pull(k, ()),
            FrontierDigest(bytes(32), before=k),
            ReplicaDigest(bytes(32), bytes([k]) * 32),
        ):
            queue.put(message)
    assert sorted(map(repr, taken(queue))) == sorted(
        map(
            repr,
            [
                Ping(2.0),
                Pong(2.0),
                Pull(2, ()),
                FrontierDigest(bytes(32), before=2),
                ReplicaDigest(bytes(32), bytes([2]) * 32),
            ],
        )
    )
    queue.put(FrontierDigest(bytes(32), before=3))
    assert taken(queue) == [FrontierDigest(bytes(32), before=3)]


def test_of_each_origin_the_newest_statement_waits_and_it_leaves_before_later_updates() -> None:
    queue = SendQueue()
    queue.put(Members((member("a"), member("b", 2))))
    queue.put(Updates((bundle(1),)))
    queue.put(Members((member("a", 5), member("b", 1), member("c"))))
    first, then = taken(queue)
    assert first == Members((member("a", 5), member("b", 2), member("c")))
    assert then == Updates((bundle(1),))
    queue.put(Members((member("a", 6),)))
    assert taken(queue) == [Members((member("a", 6),))]


def test_many_statements_leave_in_frames() -> None:
    queue = SendQueue()
    queue.put(Members(tuple(member(f"n{k}") for k in range(600))))
    queue.put(Goodbye("over"))
    messages = taken(queue)
    assert [len(one.members) for one in messages[:-1]] == [256, 256, 88]
    assert messages[-1] == Goodbye("over")


def test_chatter_of_whomever_neither_ends_a_slow_link_nor_fills_it() -> None:
    queue = SendQueue(10)
    queue.put(Updates(tuple(map(bundle, range(10)))))
    for k in range(4 * CONTROL_MAX):
        queue.put(FrontierDigest(bytes(32), before=k))
        queue.put(ReplicaDigest(bytes(32), k.to_bytes(32, "big")))
        queue.put(Members((member("chatterbox", k),)))
        queue.put(Pong(float(k)))
    assert not queue.is_stuck
    assert len(queue._waiting) < 1000
    assert len(flat(taken(queue))) == 10 + 4


def test_a_peer_that_does_not_read_what_it_answers_is_stuck_in_the_end() -> None:
    queue = SendQueue(10)
    for _ in range(CONTROL_MAX):
        queue.put(PullMore(1))
    assert not queue.is_stuck
    queue.put(Ping(1.0))
    assert queue.is_stuck
