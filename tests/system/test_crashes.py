"""kill -9 of one node, of several, of all, while epochs close and are compacted."""

import pytest
from ledgers import Ledger, check_replays, finish
from processes import Host, Hosts, ring

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

STEPS, PERIOD = 200, 20
GRADIENT = {"steps": 96, "refresh_period": 12, "estimate": "gradient"}
"""Told by all coefficients; Adam makes increments of them."""


def test_killed_nodes_come_back_with_closed_epochs(hosts: Hosts):
    a, b, c = made = hosts.make(3, ring(3), {"steps": STEPS, "refresh_period": PERIOD})
    ledger = Ledger(a)
    for host in made:
        host.start()
    b.wait_for("journal compacted")
    b.wait_for("progress", step=PERIOD + 30)
    b.kill()
    ledger.look(b.journal)
    b.start().wait_for("progress", step=3 * PERIOD)
    for host in (b, c):
        host.kill()
        ledger.look(host.journal)
        host.start()
    check_contents(made, ledger)


@pytest.mark.long
def test_all_nodes_killed_again_and_again_lose_nothing_of_their_gradients(hosts: Hosts):
    made = hosts.make(3, ring(3), GRADIENT)
    ledger = Ledger(made[0])
    for goal in (GRADIENT["steps"] // 4, GRADIENT["steps"] // 2):
        told = [host.step for host in made]
        for host in made:
            host.start()
        for host, step in zip(made, told, strict=True):
            assert host.wait_for("started")["step"] >= step - 1, "what was told was durable"
        made[0].wait_for("progress", step=goal)
        for host in made:
            assert host.process is not None
            host.process.kill()
        for host in made:
            host.end()
            ledger.look(host.journal)
    for host in made:
        host.start()
    check_contents(made, ledger)


@pytest.mark.long
def test_nodes_that_take_turns_lose_nothing_when_one_is_killed_or_all(hosts: Hosts):
    made = hosts.make(4, ring(4), {**GRADIENT, "participants": 2, "window": "strict"})
    ledger = Ledger(made[0])
    for host in made:
        host.start()
    made[0].wait_for("progress", step=GRADIENT["steps"] // 4)
    made[1].kill()
    ledger.look(made[1].journal)
    made[1].start()
    made[0].wait_for("progress", step=GRADIENT["steps"] // 2)
    for host in made:
        host.kill()
        ledger.look(host.journal)
        host.start()
    check_contents(made, ledger, is_strict=False)


@pytest.mark.long
def test_a_node_killed_while_it_catches_up_catches_up_in_its_next_life(hosts: Hosts):
    a, b, c = made = hosts.make(3, ring(3), {"steps": 400, "refresh_period": 40, "window": "bounded"})
    ledger = Ledger(a)
    for host in made:
        host.start()
    c.wait_for("progress", step=20)
    c.kill()
    a.wait_for("progress", step=c.step + 100)
    for moment in ("started", "link up"):
        c.start().wait_for(moment)
        c.kill()
        ledger.look(c.journal)
    c.start().wait_for("ready")
    check_contents(made, ledger, is_strict=False)
    assert b.has_said("member restarted")


def check_contents(made: list[Host], ledger: Ledger, *, is_strict: bool = True) -> None:
    """The same is there, once, on all hosts: in strict windows every step of every origin; and its sum was told."""
    finish(made)
    contents = [ledger.look(host.journal) for host in made]
    (frontier, _), *others = contents
    assert all(other == frontier for other, _ in others)
    if is_strict:
        steps = made[0].settings.run.steps
        assert [frontier.mark(origin) for origin in frontier.origins] == [steps] * len(made)
    for _, sums in contents:
        ledger.check_sums(sums)
    assert not ledger.contradictions
    check_replays(made)
