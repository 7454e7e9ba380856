"""Places for strangers: never more than there are, and whoever holds most loses one first."""

import asyncio

import pytest

from seedflood.transport.crowd import Crowd, host_of


class Street:
    """Streams that stay until they are sent away."""

    def __init__(self, places: int) -> None:
        self.crowd = Crowd(places)
        self.gone: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, *names: str) -> None:
        """The source is the name's first letter."""
        for name in names:
            self._tasks.append(asyncio.create_task(self._stay(name)))
            for _ in range(3):
                await asyncio.sleep(0)

    async def _stay(self, name: str) -> None:
        try:
            async with self.crowd.enter(name[0]):
                await asyncio.Event().wait()
        except TimeoutError:
            self.gone.append(name)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("comes", "gone"),
    [
        (["a1", "a2", "a3"], []),
        (["a1", "a2", "a3", "a4", "a5"], ["a1", "a2"]),
        (["b1", "a1", "a2", "a3"], ["a1"]),  # the longest of all stays: its host holds one place
        (["b1", "a1", "a2", "c1"], ["a1"]),
        (["b1", "b2", "a1", "c1"], ["b1"]),
    ],
)
async def test_of_the_address_that_holds_most_the_longest_goes(comes: list[str], gone: list[str]) -> None:
    street = Street(3)
    await street.come(*comes)
    assert street.gone == gone
    assert len(street.crowd) == 3
    await street.close()
    assert len(street.crowd) == 0


async def test_a_place_is_given_back_after_its_time() -> None:
    crowd = Crowd(1)
    with pytest.raises(TimeoutError):
        async with crowd.enter("a", 0.0):
            await asyncio.Event().wait()
    assert len(crowd) == 0


@pytest.mark.parametrize("peer", ["ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"])
def test_the_host_of_a_peer_is_its_address_without_the_port(peer: str) -> None:
    assert host_of(peer) == peer.removesuffix(":4711")


async def test_whose_time_is_up_just_now_makes_room_like_any_other() -> None:
    crowd = Crowd(1)

    async def stay() -> None:
        async with crowd.enter("a", 0.0):
            await asyncio.Event().wait()

    late = asyncio.create_task(stay())
    for _ in range(10):
        if not late.cancelling():
            await asyncio.sleep(0)
    assert len(crowd) == 1, "it does not know yet"
    async with crowd.enter("b"):
        assert len(crowd) == 1
        with pytest.raises(TimeoutError):
            await late
