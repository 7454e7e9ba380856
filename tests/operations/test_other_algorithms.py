"""What operators see of a node that does not train by SeedFlood: what it has, and nothing that it has not."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from forks import run_command

from seedflood.operations import hub as hub_module
from seedflood.operations.console import Console
from seedflood.operations.subject import Subject
from seedflood.protocol.view import Blocker, CatchingUp
from strangers import StrangeNode, open_console


@pytest.fixture
def node() -> StrangeNode:
    return StrangeNode()


@pytest.fixture
async def console(tmp_path, node) -> AsyncIterator[Console]:
    one = await open_console(tmp_path, node)
    yield one
    await one.close()


async def get(http, console, path):
    async with http.get(f"http://{console.address}{path}") as answer:
        return answer.status, await answer.text()


async def status_of(http, console):
    return json.loads((await get(http, console, "/api/status"))[1], parse_constant=pytest.fail)


class Clock:
    """What `time` says, as a test sets it. set_by: how far off the clock on the wall is."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.set_by = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.set_by


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(hub_module, "time", made)
    return made


def keys(status):
    return {key: set(value) if isinstance(value, dict) else None for key, value in status.items()}


async def test_the_status_has_the_keys_that_it_has_of_seedflood(console, cluster, http):
    a = await cluster.start("a", [], {"clients": 1, "steps": 4})
    strange, known = keys(await status_of(http, console)), keys(await status_of(http, a))
    assert strange.pop("figures") == {"mean", "spread", "pairs_met"}
    assert known.pop("figures") <= {"learning_rate", "rate_halvings", "loss_of_all_hosts"}
    assert strange == known


async def test_what_the_algorithm_has_not_is_null(console, http):
    said = await status_of(http, console)
    assert (said["state"], said["is_ready"]) == ("ready", True)
    assert (said["progress"]["step"], said["progress"]["epoch"]) == (40, None)
    assert set(said["window"].values()) == {None}
    assert said["journal"] == {"bundles": None, "bytes": 40_960, "closed_epochs": None, "records": 160}
    counts = {key: value for key, value in said["updates"].items() if key != "rejected"}
    assert set(counts.values()) == {None}
    assert said["updates"]["rejected"] == {"no pair": 3}
    assert (said["traffic"]["seedflood_bytes"], said["traffic"]["gossip_bytes"]) == (476_000, None)
    run = said["node"]["run"]
    assert (run["mode"], run["algorithm"]) == ("gossip", {"partners": 2, "share": 0.5})
    assert run["window"] is run["local_steps"] is run["refresh_period"] is None


async def test_a_blocker_that_has_no_words_is_shown_as_it_is(console, http):
    (blocker,) = (await status_of(http, console))["blockers"]
    assert (blocker["kind"], blocker["seconds"], blocker["reason"]) == ("companion", 12.0, "companion (beta)")


async def test_a_copy_is_told_in_bytes(console, node, http):
    node.show(is_ready=False, catching_up=CatchingUp(4, 12_300_000, 45_600_000, "bytes"))
    said = await status_of(http, console)
    assert said["why_not_ready"] == "it holds 12.3 of 45.6 MB so far, from delta"
    assert said["catching_up"] == {"donor": "delta", "held": 12_300_000, "wanted": 45_600_000, "unit": "bytes"}
    metrics = (await get(http, console, "/metrics"))[1]
    assert "seedflood_catchup_lag_bytes 3.33e+07" in metrics
    assert "seedflood_catchup_lag_steps 0.0" in metrics


async def test_what_it_tells_in_words_and_who_exchanges_with_whom_is_shown(console, node, http):
    assert (await status_of(http, console))["words"] == {}
    node.show(words={"exchanged_with": "beta"}, pairs=((1, 2), (3, 4)))
    said = await status_of(http, console)
    assert said["words"] == {"exchanged_with": "beta"}
    assert said["pairs"] == [[f"{a:016x}", f"{b:016x}"] for a, b in ((1, 2), (3, 4))]


async def test_a_node_that_is_not_ready_says_for_whom_it_waits(console, node, http):
    node.show(is_ready=False)
    reason = "it does not take part yet\nhas waited for 12 s: companion (beta)\n"
    assert await get(http, console, "/readyz") == (503, reason)


async def test_a_node_whose_disk_is_full_is_not_ready(console, node, http):
    node.is_disk_full = True
    status, text = await get(http, console, "/readyz")
    reason = "no space is left on its disk, and it publishes nothing before there is"
    assert (status, text.splitlines()[0]) == (503, reason)
    said = await status_of(http, console)
    assert (said["state"], said["is_ready"], said["why_not_ready"]) == ("disk full", False, reason)
    assert "seedflood_ready 0.0" in (await get(http, console, "/metrics"))[1]
    node.is_disk_full = False
    assert await get(http, console, "/readyz") == (200, "ready\n")


async def test_a_node_that_has_waited_for_minutes_is_not_ready_until_a_step_is_done(console, node, http, clock):
    console.hub.stepped(1)
    clock.now += 119.0
    node.show(now=119.0, blockers=(Blocker("window", 2, "beta", 40, 0.0),))
    assert await get(http, console, "/readyz") == (200, "ready\n")
    clock.now += 2.0
    node.show(now=121.0)
    reason = "no step was done for 121 s: step 40 of beta has not come"
    status, text = await get(http, console, "/readyz")
    assert (status, text.splitlines()) == (503, [reason, "has waited for 121 s: step 40 of beta has not come"])
    said = await status_of(http, console)
    assert (said["state"], said["is_ready"], said["why_not_ready"]) == ("stands still", False, reason)
    console.hub.stepped(1)
    assert await get(http, console, "/readyz") == (200, "ready\n")


async def test_a_step_that_takes_minutes_is_no_standstill(console, node, http, clock):
    for _ in range(40, 43):
        clock.now += 100.0
        console.hub.stepped(1)
    clock.now += 250.0
    node.show(now=250.0, blockers=(Blocker("window", 2, "beta", 42, 0.0),))
    assert await get(http, console, "/readyz") == (200, "ready\n"), "slow hosts make long rounds"
    clock.now += 100.0
    node.show(now=350.0, blockers=())
    assert await get(http, console, "/readyz") == (200, "ready\n"), "it measures, and waits for nobody"


async def test_its_figures_are_shown_and_what_is_no_number_is_null(console, node, http):
    node.show(figures={"mean": 3.25, "wrong": float("nan")})
    assert (await status_of(http, console))["figures"] == {"mean": 3.25, "wrong": None}


async def test_its_figures_are_metrics(console, http):
    text = (await get(http, console, "/metrics"))[1]
    assert 'seedflood_algorithm_figure{name="mean"} 3.25' in text
    assert 'seedflood_algorithm_figure{name="spread"} 0.00017' in text
    assert 'seedflood_updates_rejected_total{reason="no_pair"} 3.0' in text
    assert "seedflood_window_close_seconds_bucket" not in text


async def test_what_it_has_no_updates_for_cannot_be_traced(console, http):
    assert await get(http, console, "/api/trace?origin=beta&step=3") == (404, "this run has no updates to trace\n")
    console.hub.subject = Subject()
    assert await get(http, console, "/api/trace?origin=alpha&step=3") == (503, "the model is being loaded\n")


@pytest.mark.long
async def test_the_command_tells_the_same(console):
    said = await asyncio.to_thread(run_command, "status", "--node", console.address, COLUMNS="200")
    rows = dict(line.split(maxsplit=1) for line in said.stdout.splitlines())
    assert "mode gossip" in rows["run"]
    assert rows["figures"].strip() == "mean 3.25, spread 0.00017, pairs_met 1234"
    assert rows["journal"].strip() == "160 records, 41.0 kB"
    assert rows["traffic"].strip() == "476.0 kB"
    assert not {"window", "updates"} & set(rows)
