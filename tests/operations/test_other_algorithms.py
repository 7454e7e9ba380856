"""What operators see of a node that does not train by SeedFlood: what it has, and nothing that it has not."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from forks import run_command

from seedflood.operations import hub as hub_module
from seedflood.operations.console import Console
from seedflood.operations.history import FIGURES_MAX, History
from seedflood.operations.seedflood.observer import SeedfloodObserver
from seedflood.operations.subject import Subject
from seedflood.protocol.seedflood.outputs import ClosedWindow
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


async def test_its_figures_are_shown_and_remembered(console, node, http, clock):
    figures = []
    for mean in (4.0, 3.5, 3.25):
        clock.now += 1.0
        node.show(figures={"mean": mean, "wrong": float("nan")})
        figures.append((await status_of(http, console))["figures"])
    assert figures[-1] == {"mean": 3.25, "wrong": None}
    history = (await status_of(http, console))["history"]["algorithm"]
    assert history == {"mean": [[1001.0, 4.0], [1002.0, 3.5], [1003.0, 3.25]]}


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


def test_the_figures_of_an_algorithm_that_invents_names_are_bounded():
    history = History()
    for k in range(10 * FIGURES_MAX):
        history.described(float(k), {f"name{k}": 1.0, "name0": float(k)})
    assert len(history.algorithm_figures) == FIGURES_MAX
    assert history.algorithm_figures["name0"].points()[-1][1] > 9 * FIGURES_MAX


async def test_how_fast_a_node_is_follows_from_the_steps_that_it_reaches(console, http, clock):
    console.hub.reached(1000)
    for step in (4, 4, 8, 12):
        console.hub.reached(1000 + step)
        clock.now += 1.0
    assert (await status_of(http, console))["progress"]["steps_per_second"] == pytest.approx(2.0)
    assert "seedflood_last_step_timestamp_seconds 1003.0" in (await get(http, console, "/metrics"))[1]


async def test_who_sets_the_clock_changes_no_duration(console, node, http, clock):
    console.hub.measured(40, 1, 1.0, 0.5)
    for step, set_by in enumerate((0.0, 90_000.0, 90_000.0, -7200.0, -7200.0), start=41):
        clock.now, clock.set_by = clock.now + 1.0, set_by
        node.show(step=step)
        console.hub.reached(step)
    said = (await status_of(http, console))["progress"]
    assert (said["steps_per_second"], said["spent_seconds"], console.hub.quiet_seconds()) == (1.0, 5.5, 0.0)


async def test_a_node_that_no_longer_moves_has_no_time_left_to_tell(console, node, http, clock):
    for _ in range(1, 41):
        clock.now += 0.1
        console.hub.stepped(1)
    moving = (await status_of(http, console))["progress"]
    assert moving["steps_per_second"] == pytest.approx(10.0)
    assert moving["seconds_left"] == pytest.approx(6.0)
    clock.now += 31.0
    still = (await status_of(http, console))["progress"]
    assert (still["steps_per_second"], still["seconds_left"]) == (0.0, None)
    for _ in range(41, 45):
        console.hub.stepped(1)
        clock.now += 0.1
    again = (await status_of(http, console))["progress"]
    assert again["steps_per_second"] == pytest.approx(10.0, rel=0.5)


async def test_nobody_knows_how_much_time_is_left_while_a_node_waits(console, node, http, clock):
    node.show(blockers=())
    for _ in range(1, 41):
        clock.now += 0.1
        console.hub.stepped(1)
    clock.now += 4.0
    node.show(now=4.0, blockers=(Blocker("window", 2, "beta", 40, 0.5),))
    still = (await status_of(http, console))["progress"]
    assert (still["steps_per_second"], still["seconds_left"]) == (0.0, None)


async def test_how_fast_a_node_catches_up_is_not_its_speed(console, node, http, clock):
    node.show(blockers=())
    observer = SeedfloodObserver(console.hub, lambda origin, step: (False, False))
    for step in (*range(10), 17, 76, 387, 766, 1551, *range(1552, 1557)):  # it was stopped for a while
        clock.now += 0.1
        observer.applied(ClosedWindow((step, step), (), 0, 3, (), "all heard", 0.0))
    assert (await status_of(http, console))["progress"]["steps_per_second"] == pytest.approx(10.0)


async def test_a_jump_to_the_round_of_the_others_is_no_speed(console, node, http, clock):
    node.show(blockers=())
    for step in (20, 40, 60, 4060, 4080, 4100):
        clock.now += 2.0
        console.hub.reached(step)
    assert (await status_of(http, console))["progress"]["steps_per_second"] == pytest.approx(10.0)


async def test_a_node_with_long_steps_moves_between_them(console, clock):
    for _ in range(1, 4):
        clock.now += 300.0
        console.hub.stepped(1)
    clock.now += 800.0
    assert console.hub.steps_per_second() > 0
    clock.now += 200.0
    assert console.hub.steps_per_second() == 0
