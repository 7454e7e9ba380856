"""Counters since the process began, for the metrics and the status page of a node."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series per counter that nobody reads

SECONDS_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Tally:
    """registry: of this node alone, so that several nodes can be in one process. last_step_at: Unix time at which the
    last step was done. gossip_bytes: what it would have cost to exchange all parameters with every neighbour at each
    step. has_updates: does the algorithm publish updates, so that these can be counted?"""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.has_updates = False
        self.originated = 0
        self.applied = 0
        self.late = 0
        self.mismatches = 0
        self.gossip_bytes = 0
        self.last_step_at: float | None = None
        self.steps = Histogram(
            "seedflood_step_seconds", "How long measuring a step took.", buckets=SECONDS_BOUNDS, registry=self.registry
        )
        self._windows = Histogram(
            "seedflood_window_close_seconds",
            "How long windows were open, by why they closed: all_received, bound, no_waiting.",
            ["reason"],
            buckets=SECONDS_BOUNDS,
            registry=self.registry,
        )

    def count_updates(self, close_reasons: Iterable[str]) -> None:
        """Declares that the algorithm has updates, and windows that close for these reasons. Each reason is a time
        series from the start."""
        self.has_updates = True
        for reason in close_reasons:
            self._windows.labels(label(reason))

    def closed(self, reason: str, seconds: float) -> None:
        self._windows.labels(label(reason)).observe(seconds)


def percentile(samples: Sequence[float], share: float) -> float | None:
    return sorted(samples)[int(share * (len(samples) - 1) + 0.5)] if samples else None


def label(words: str) -> str:
    """Words as the value of a metric's label: "all received" becomes all_received."""
    return words.replace(" ", "_")
