"""The lag of the event loop: how long a neighbour's frame, a probe or a signal waits before it is handled."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

PERIOD_SECONDS = 0.02
BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class LoopLag:
    """Sets a timer again and again, and measures how late it fires."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._histogram = Histogram(
            "seedflood_event_loop_lag_seconds",
            "How late the event loop runs a timer, measured 50 times a second.",
            buckets=BOUNDS,
            registry=registry,
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD_SECONDS
        self._timer = loop.call_at(due, self._look, loop, due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._histogram.observe(max(0.0, loop.time() - due))
        self.start(loop)
