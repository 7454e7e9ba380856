"""Texts are written ahead where nothing else is to be done, and nobody waits for more than those of a step."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from seedflood.host.compute import Compute, ComputeThread
from seedflood.host.seedflood.work import Work
from seedflood.protocol.seedflood.messages import ReplicaDigest
from seedflood.protocol.seedflood.outputs import Measure, Measured, TakeDigest

PATIENCE_SECONDS = 20.0


class Writing:
    """A trainer that writes the texts of two steps after each that it measures, each when `go` says so."""

    def __init__(self, ahead=2):
        self.run = SimpleNamespace(objective=SimpleNamespace(ahead=ahead))
        self.replica = SimpleNamespace(is_over=lambda step: False)
        self.done = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def measure(self, origin, step, count):
        self.done.append(("measured", step))
        return SimpleNamespace(probes=())

    def write_ahead(self, origin, after):
        if sum(one == ("wrote", after) for one in self.done) == 2:
            return False
        self.begun.release()
        assert self.go.acquire(timeout=PATIENCE_SECONDS)
        self.done.append(("wrote", after))
        return True

    def digest(self):
        self.done.append("digest")
        return bytes(32)


class Host:
    """What the daemon has between its loop and its trainer."""

    def __init__(self, trainer):
        self.thread, self.answers = ComputeThread(), asyncio.Queue()
        self.work = Work(1, trainer)
        self.compute = Compute(self._run, lambda action: action(), self.work.begin, lambda fact: None)
        self.compute.driver = SimpleNamespace(answered=self.answers.put_nowait)

    def _run(self, job, then):
        self.thread.run(job).add_done_callback(lambda future: then(future.result()))

    async def answer(self):
        return await asyncio.wait_for(self.answers.get(), PATIENCE_SECONDS)

    async def until_idle(self):
        """Until no job is left, nor one that a job has left behind."""
        for _ in range(8):
            await asyncio.wait_for(self.thread.run(lambda: None), PATIENCE_SECONDS)


@pytest.fixture
async def hosts():
    made = []

    def make(trainer):
        made.append(Host(trainer))
        return made[-1]

    yield make
    for host in made:
        assert host.thread.close(PATIENCE_SECONDS)


def begun(trainer):
    return asyncio.to_thread(trainer.begun.acquire, timeout=PATIENCE_SECONDS)


async def test_a_job_that_comes_while_texts_are_written_waits_for_those_of_one_step(hosts):
    trainer = Writing()
    host = hosts(trainer)
    host.compute.put(Measure(0, 1))
    assert isinstance(await host.answer(), Measured), "it is told before anything is written"
    assert await begun(trainer)
    host.compute.put(TakeDigest(bytes(32)))
    trainer.go.release(2)
    assert isinstance(await host.answer(), ReplicaDigest)
    await host.until_idle()
    assert trainer.done == [("measured", 0), ("wrote", 0), "digest", ("wrote", 0)]


async def test_when_the_next_step_is_measured_writing_goes_on_from_there_and_only_once(hosts):
    trainer = Writing()
    host = hosts(trainer)
    trainer.go.release(9)
    host.compute.put(Measure(0, 1))
    host.compute.put(Measure(1, 1))
    for _ in range(2):
        await host.answer()
    await host.until_idle()
    assert trainer.done == [("measured", 0), ("measured", 1), ("wrote", 1), ("wrote", 1)]


async def test_nothing_is_written_before_the_first_measurement_nor_while_the_node_goes(hosts):
    trainer = Writing()
    host = hosts(trainer)
    trainer.go.release(9)
    host.compute.put(TakeDigest(bytes(32)))
    await host.answer()
    await host.until_idle()
    host.work.is_closed = True
    host.compute.put(Measure(0, 1))
    await host.answer()
    await host.until_idle()
    assert trainer.done == ["digest", ("measured", 0)]


async def test_without_ahead_nothing_is_written(hosts):
    trainer = Writing(ahead=0)
    host = hosts(trainer)
    trainer.go.release(9)
    host.compute.put(Measure(0, 1))
    await host.answer()
    await host.until_idle()
    assert trainer.done == [("measured", 0)]
