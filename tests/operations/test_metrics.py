"""What Prometheus reads of a real node: valid for its own tool, and as the documentation says."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seedflood.operations.metrics import REPUTATIONS_MAX
from seedflood.operations.tally import label
from seedflood.protocol.seedflood.admission import Objection
from strangers import VIEW, StrangeNode, open_console

DOCUMENT = Path(__file__).parents[2] / "deploy" / "METRICS.md"
RUN = {"clients": 2, "steps": 8, "window": "strict"}  # so that nothing is late
STANDING, CONTRADICTING = "seedflood_host_reputation", "seedflood_hosts_contradicting"


@pytest.fixture
async def scrape(cluster, http):
    """The text of a node whose run is over, and which serves."""
    a = await cluster.start("a", [], RUN, {"then": "serve", "evaluate_examples": 8})
    b = await cluster.start("b", ["a"], RUN, {"then": "serve"})
    await cluster.until(lambda: a.result is not None and b.result is not None)
    async with http.get(f"http://{a.address}/metrics") as answer:
        assert answer.content_type == "text/plain"
        return await answer.text()


@pytest.fixture
async def read(tmp_path, http):
    """What reads the text of a node that shows what a test wants shown."""
    node = StrangeNode()
    console = await open_console(tmp_path, node)

    async def scraped(**shown):
        node.show(**shown)
        async with http.get(f"http://{console.address}/metrics") as answer:
            return await answer.text()

    yield scraped
    await console.close()


def reputation(origin, value, *, name="mallory"):
    return replace(VIEW.members[0], origin=origin, name=name, reputation=value, contradicts=value < -1)


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_the_numbers_are_those_of_the_run(scrape):
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(scrape).values()
        for sample in family.samples
    }
    assert samples["seedflood_updates_originated_total",] == 8
    assert samples["seedflood_updates_applied_total",] == 16
    assert samples["seedflood_updates_late_total",] == 0
    assert samples["seedflood_updates_rejected_total", "signature"] == 0
    assert samples["seedflood_window_close_seconds_count", "all_received"] == 8
    assert samples["seedflood_step_seconds_count",] == 8
    assert samples["seedflood_window_step",] == samples["seedflood_run_steps",] == 8
    assert samples["seedflood_peers", "linked"] + samples["seedflood_peers", "left"] == 1
    assert samples["seedflood_link_sent_bytes_total", "b"] > 0
    assert samples["seedflood_link_received_bytes_total", "b"] > 0
    assert samples["seedflood_journal_bytes",] > 0
    assert samples["seedflood_ready",] == 1
    assert samples["seedflood_disk_full",] == samples["seedflood_catchup_lag_steps",] == 0
    assert 0 <= samples["seedflood_figure", "accuracy"] <= 1
    assert samples["seedflood_last_step_timestamp_seconds",] > samples["process_start_time_seconds",]


async def test_promtool_finds_nothing_to_object_to(scrape):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    checked = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=scrape, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


async def test_the_documentation_lists_exactly_what_is_there(scrape, read):
    strange = families(await read(members=(reputation(1, 2.0),)))
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE))
    found = {
        family.name + ("_total" if family.type == "counter" else ""): describe(family)
        for family in [*families(scrape).values(), strange["seedflood_algorithm_figure"], strange[STANDING]]
        if family.name.startswith("seedflood_")
    }
    assert listed == found


def describe(family):
    labels = sorted({label for sample in family.samples for label in sample.labels if label != "le"})
    return f"{family.type} | {', '.join(labels) or '-'} | {family.documentation}"


async def test_every_reason_to_reject_has_its_own_series(scrape):
    samples = families(scrape)["seedflood_updates_rejected"].samples
    told = {sample.labels["reason"] for sample in samples if sample.name.endswith("_total")}
    assert told == {label(reason) for reason in get_args(Objection)}


async def test_nothing_grows_with_the_number_of_members(scrape):
    labels = {label for family in families(scrape).values() for sample in family.samples for label in sample.labels}
    assert labels <= {"le", "reason", "state", "peer", "version", "python", "name"}


async def test_who_contradicts_is_told_of_each_host_also_where_two_have_one_name(read):
    told = families(await read(members=(reputation(1, 2.0), reputation(2, -3.5))))
    samples = {sample.labels["origin"]: (sample.labels["host"], sample.value) for sample in told[STANDING].samples}
    assert samples == {f"{1:016x}": ("mallory", 2.0), f"{2:016x}": ("mallory", -3.5)}
    assert [sample.value for sample in told[CONTRADICTING].samples] == [1]
    gone = replace(reputation(2, -3.5), status="left")
    told = families(await read(members=(reputation(1, 2.0), gone)))
    assert [sample.value for sample in told[CONTRADICTING].samples] == [0]


async def test_where_hosts_are_not_compared_nothing_is_said_of_it(scrape):
    found = families(scrape)
    assert found[STANDING].samples == found[CONTRADICTING].samples == []


async def test_of_a_crowd_the_lowest_reputations_are_told(read):
    crowd = tuple(reputation(origin, float(origin)) for origin in range(1, 2 * REPUTATIONS_MAX))
    samples = families(await read(members=crowd))[STANDING].samples
    assert {sample.value for sample in samples} == set(range(1, REPUTATIONS_MAX + 1))


def test_variables_of_other_programs_do_not_move_the_metrics(tmp_path):
    script = "import seedflood.operations.console, prometheus_client.values as v; print(v.ValueClass.__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "missing"), "prometheus_multiproc_dir": "missing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.strip(), ran.stderr) == ("MutexValue", "")
