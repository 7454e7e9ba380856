"""Metrics for Prometheus. They are read from the node at each scrape, so they cost nothing in between.

They have base units and `_total` for counters. No label grows with the run: reasons and states are closed sets, and
only so many neighbours and hosts have their own. `deploy/METRICS.md` lists them; a test compares it with a real scrape.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import get_args

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from seedflood import VERSION
from seedflood.operations.hub import TelemetryHub
from seedflood.operations.status import why_not_ready
from seedflood.operations.subject import LOADING, LinkState, Subject
from seedflood.operations.tally import label
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.view import Hops, MemberStatus, MemberView

LINKS_MAX = 256
"""The most neighbours with their own label. All others share the label "other"."""

REPUTATIONS_MAX = 256
"""The most hosts whose reputations are shown: the lowest."""


_OF_LINKS = (
    ("sent_bytes", "bytes_sent", "Bytes of frames sent to a neighbour."),
    ("received_bytes", "bytes_received", "Bytes of frames received from a neighbour."),
    ("sent_frames", "frames_sent", "Frames sent to a neighbour."),
    ("received_frames", "frames_received", "Frames received from a neighbour."),
    ("opened", "links_opened", "Links that were opened with a neighbour."),
    ("lost", "links_lost", "Links with a neighbour that ended without a goodbye."),
    (
        "muted_seconds",
        "muted_seconds",
        "How long nothing was read from a neighbour because it had used up its budget.",
    ),
    (
        "dropped_updates",
        "updates_dropped",
        "Updates, or opaque messages, that were dropped because a neighbour reads too slowly.",
    ),
)
"""Of each: how the metric is called, which attribute of a `LinkState` it is, and what it means."""


def make_scrape(hub: TelemetryHub) -> Callable[[], bytes]:
    """What returns the text that Prometheus reads."""
    hub.tally.registry.register(NodeCollector(hub))
    ProcessCollector(registry=hub.tally.registry)
    return partial(generate_latest, hub.tally.registry)


class NodeCollector(Collector):
    def __init__(self, hub: TelemetryHub) -> None:
        self._hub = hub

    def describe(self) -> Iterable[Metric]:
        """Describes nothing; else the registry would call `collect` before there is a node."""
        return ()

    def collect(self) -> Iterator[Metric]:
        hub, subject = self._hub, self._hub.subject
        tally = hub.tally
        build = GaugeMetricFamily(
            "seedflood_build_info", "Always 1; the labels say what runs.", labels=["version", "python"]
        )
        build.add_metric([VERSION, platform.python_version()], 1)
        yield build
        yield _gauge("ready", "1 if the node is ready, as /readyz says, else 0.", why_not_ready(hub) is None)
        yield _counter("updates_originated", "Updates measured and published here.", tally.originated)
        yield _counter("updates_applied", "Updates applied to the replica, replays at start included.", tally.applied)
        yield _counter("updates_late", "Updates applied after their own window had closed.", tally.late)
        yield _counter("replica_mismatches", "How often a neighbour's replica was found to differ.", tally.mismatches)
        yield _counter("event_lines_lost", "Lines that the event log could not write.", hub.lines_lost)
        yield _gauge("loss", "Training loss of the last measured round.", hub.loss)
        yield _gauge(
            "loss_risen",
            "1 if the loss of the last evaluation is clearly above the best one, else 0.",
            hub.rise is not None,
        )
        yield _labelled(
            GaugeMetricFamily, "figure", "Figures of the last evaluation on the validation rows.", "name", hub.figures
        )
        yield _gauge("last_step_timestamp_seconds", "When the last window closed, Unix time.", tally.last_step_at)
        if subject.view().phase != LOADING:
            yield from _node(subject, hub.settings.run.steps)
            yield from _links(subject.link_states())


def _node(subject: Subject, steps: int) -> Iterator[Metric]:
    view, journal = subject.view(), subject.journal_size()
    yield _labelled(
        GaugeMetricFamily, "algorithm_figure", "Figures that the algorithm of the run reports.", "name", view.figures
    )
    yield _counter("updates_duplicate", "Updates that came again and were dropped.", view.duplicates)
    refused = {label(reason): count for reason, count in view.refused.items()}
    text = "Bundles, statements and sums of others that were not used."
    yield _labelled(CounterMetricFamily, "updates_rejected", text, "reason", refused)
    text, faults = "Frames and links of others that were refused.", dict(sorted(subject.link_faults().items()))
    yield _labelled(CounterMetricFamily, "peer_faults", text, "reason", faults)
    yield _counter("tls_handshakes", "TLS handshakes that others have begun.", subject.handshakes)
    yield _counter(
        "equivocations",
        "Hosts that provably contradicted themselves, and count no more from there on.",
        view.equivocations,
    )
    yield _gauge("window_step", "First step of the round that is measured or collected.", view.step)
    yield _gauge("run_steps", "Length of the run in steps.", view.steps or steps)
    states = dict.fromkeys(get_args(MemberStatus), 0) | Counter(member.status for member in view.members)
    del states["self"]
    yield _labelled(GaugeMetricFamily, "peers", "Other members of the run by their status.", "state", states)
    yield from _reputations(view.members)
    yield _gauge("cut_vertices", "Hosts that are the only way between some others.", len(view.cut_vertices))
    roster = view.roster
    yield _gauge("run_closed", "1 if only hosts on a roster take part, 0 if the run is open.", roster is not None)
    yield _gauge(
        "roster_serial", "Serial of the roster that counts here; 0 if the run is open.", roster.serial if roster else 0
    )
    yield _gauge("roster_hosts", "Hosts that the roster lists and that may link now.", roster.hosts if roster else 0)
    removals = roster.removals if roster else ()
    frozen = sum(not one.is_cut for one in removals)
    yield _gauge("roster_frozen", "Hosts that were removed, and not cut off yet.", frozen)
    unsettled = sum(one.is_cut and not one.is_settled for one in removals)
    yield _gauge("roster_unsettled", "Hosts that were cut off, and of which updates lack that count.", unsettled)
    standing = roster.contradicted if roster else 0
    yield _gauge("roster_contradicted", "Ranges of steps that compacted epochs hold against a cut.", standing)
    yield _hops(view.hops)
    catching_up = view.catching_up
    lacking = {catching_up.unit: catching_up.wanted - catching_up.held} if catching_up is not None else {}
    lag, copied = lacking.get("steps", 0), lacking.get("bytes", 0)
    yield _gauge("catchup_lag_steps", "Steps of all origins that its donor held and it lacks; 0 after that.", lag)
    yield _gauge("catchup_lag_bytes", "Bytes that it lacks of a copy of a neighbour's replica; 0 after that.", copied)
    yield _gauge("journal_bytes", "Size of the journal on the disk.", journal["bytes"])
    yield _gauge("disk_full", "The disk of the journal is full: nothing is published.", subject.is_disk_full)


def _reputations(members: Sequence[MemberView]) -> Iterator[Metric]:
    """Two hosts may have one name, so each sample also has its origin."""
    known = sorted((one.reputation, one.name, fingerprint(one.origin)) for one in members if one.reputation is not None)
    text = "How far a host agrees with the others, in units of chance; only with gradients."
    family = GaugeMetricFamily("seedflood_host_reputation", text, labels=["host", "origin"])
    for reputation, name, origin in known[:REPUTATIONS_MAX]:
        family.add_metric([name, origin], reputation)
    yield family
    contradicting = sum(one.contradicts is True and one.status != "left" for one in members) if known else None
    yield _gauge("hosts_contradicting", "Hosts whose updates do not count now, for they contradict.", contradicting)


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
    for name, attribute, text in _OF_LINKS:
        count = attrgetter(attribute)
        family = CounterMetricFamily(f"seedflood_link_{name}", text, labels=["peer"])
        for link in linked[:LINKS_MAX]:
            family.add_metric([link.peer], count(link))
        if others := linked[LINKS_MAX:]:
            family.add_metric(["other"], sum(map(count, others)))
        yield family


def _labelled(
    kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, what: str, values: Mapping[str, float]
) -> Metric:
    """One sample for each value, by its label. what: the label is."""
    family = kind(f"seedflood_{name}", text, labels=[what])
    for one, value in values.items():
        family.add_metric([one], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"seedflood_{name}", text, value=value)


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """A gauge. It has no sample if the value is None."""
    return GaugeMetricFamily(f"seedflood_{name}", text, value=None if value is None else float(value))
