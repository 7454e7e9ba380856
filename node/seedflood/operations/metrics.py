"""Metrics for Prometheus: read from the node when somebody scrapes, so that they cost nothing in between.

Base units, `_total` for counters, and no label that grows with the run: reasons and states are closed sets, and only
direct neighbours have a label of their own. `deploy/METRICS.md` lists them; a test compares it with a real scrape.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import get_args

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from seedflood import VERSION
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.status import why_not_ready
from seedflood.operations.subject import LinkState, Subject
from seedflood.operations.tally import label
from seedflood.protocol.view import Hops, MemberStatus

CONTENT_TYPE = CONTENT_TYPE_LATEST

LINKS_MAX = 256
"""Neighbours with a label of their own; whoever links beyond these shares the label "other"."""


_OF_LINKS: tuple[tuple[str, str, Callable[[LinkState], float]], ...] = (
    ("sent_bytes", "Bytes of frames sent to a neighbour.", lambda link: link.bytes_sent),
    ("received_bytes", "Bytes of frames received from a neighbour.", lambda link: link.bytes_received),
    ("sent_frames", "Frames sent to a neighbour.", lambda link: link.frames_sent),
    ("received_frames", "Frames received from a neighbour.", lambda link: link.frames_received),
    ("opened", "Links that were opened with a neighbour.", lambda link: link.links_opened),
    (
        "muted_seconds",
        "For how long nothing was read from a neighbour, since its budget was spent.",
        lambda link: link.muted_seconds,
    ),
    (
        "dropped_updates",
        "Updates, or opaque messages, that gave way to newer ones because a neighbour reads too slowly.",
        lambda link: link.updates_dropped,
    ),
)


class Metrics:
    """`scrape` gives the text that Prometheus reads."""

    def __init__(self, hub: TelemetryHub) -> None:
        self._registry = hub.tally.registry
        self._registry.register(NodeCollector(hub))
        ProcessCollector(registry=self._registry)

    def scrape(self) -> bytes:
        return generate_latest(self._registry)


class NodeCollector(Collector):
    def __init__(self, hub: TelemetryHub) -> None:
        self._hub = hub

    def describe(self) -> Iterable[Metric]:
        """Nothing: else the registry would collect before there is a node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        hub, subject = self._hub, self._hub.subject
        tally = hub.tally
        build = GaugeMetricFamily(
            "seedflood_build_info", "Always 1; the labels say what runs.", labels=["version", "python"]
        )
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build
        yield _gauge("ready", "Takes part, with a replica seen to equal a neighbour's.", why_not_ready(hub) is None)
        yield _counter("updates_originated", "Updates measured and published here.", tally.originated)
        yield _counter("updates_applied", "Updates applied to the replica, replays at start included.", tally.applied)
        yield _counter("updates_late", "Of those, updates whose own window had closed.", tally.late)
        yield _counter("replica_mismatches", "How often a neighbour's replica was seen to differ.", tally.mismatches)
        yield _counter("event_lines_lost", "Lines that the event log could not write.", hub.lines_lost)
        yield _gauge("loss", "Training loss of the last measured round.", hub.loss)
        figures = GaugeMetricFamily(
            "seedflood_figure", "By name: what the last evaluation measured on the validation rows.", labels=["name"]
        )
        for name, value in hub.figures.items():
            figures.add_metric([name], value)
        yield figures
        yield _gauge("last_step_timestamp_seconds", "When the last window closed, Unix time.", tally.last_step_at)
        if subject is not None:
            yield from _node(subject, hub.settings.run.steps)
            yield from _links(subject.link_states())


def _node(subject: Subject, steps: int) -> Iterator[Metric]:
    view, journal = subject.view(), subject.journal_size()
    shown = GaugeMetricFamily(
        "seedflood_algorithm_figure", "By name: what the algorithm of the run shows of itself.", labels=["name"]
    )
    for name, value in view.figures.items():
        shown.add_metric([name], value)
    yield shown
    yield _counter("updates_duplicate", "Updates that came again and were dropped.", view.duplicates)
    rejected = CounterMetricFamily(
        "seedflood_updates_rejected", "Bundles, statements and sums of others that were not used.", labels=["reason"]
    )
    for reason, count in view.refused.items():
        rejected.add_metric([label(reason)], count)
    yield rejected
    faults = CounterMetricFamily(
        "seedflood_peer_faults", "Frames and links of others that were refused.", labels=["reason"]
    )
    for fault, count in sorted(subject.link_faults().items()):
        faults.add_metric([fault], count)
    yield faults
    yield _counter("equivocations", "Steps of which a host was proven to say two things.", view.equivocations)
    yield _gauge("window_step", "First step of the round that is measured or collected.", view.step)
    yield _gauge("run_steps", "Length of the run in steps.", steps)
    peers = GaugeMetricFamily("seedflood_peers", "Other members of the run by what is known of them.", labels=["state"])
    for state in get_args(MemberStatus):
        if state != "self":
            peers.add_metric([state], sum(member.status == state for member in view.members))
    yield peers
    yield _hops(view.hops)
    catching_up = view.catching_up
    lag = catching_up.wanted - catching_up.held if catching_up is not None and catching_up.unit == "steps" else 0
    yield _gauge("catchup_lag_steps", "Steps of all origins that its donor held and it lacks; 0 after that.", lag)
    yield _gauge("journal_bytes", "Size of the journal on the disk.", journal["bytes"])
    yield _gauge("disk_full", "The disk of the journal is full: nothing is published.", subject.is_disk_full)


def _hops(hops: Hops) -> Metric:
    text = "Half a round trip to a neighbour, event loops and queues of both sides included."
    bounds = [*(str(bound) for bound in hops.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(hops.counts), strict=True))
    return HistogramMetricFamily("seedflood_hop_delay_seconds", text, buckets=buckets, sum_value=hops.sum_seconds)


def _links(links: list[LinkState]) -> Iterator[Metric]:
    yield _counter(
        "updates_received", "Updates that neighbours sent, duplicates included.", sum(x.updates_received for x in links)
    )
    linked = [link for link in links if link.origin is not None]
    for name, text, count in _OF_LINKS:
        family = CounterMetricFamily(f"seedflood_link_{name}", text, labels=["peer"])
        for link in linked[:LINKS_MAX]:
            family.add_metric([link.peer], count(link))
        if others := linked[LINKS_MAX:]:
            family.add_metric(["other"], sum(map(count, others)))
        yield family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"seedflood_{name}", text, value=value)


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """Without a sample while the value is not known."""
    return GaugeMetricFamily(f"seedflood_{name}", text, value=None if value is None else float(value))
