"""A node that is stopped (SIGSTOP) and goes on later: for the others like one whose host hangs."""

import signal

import pytest
from ledgers import check_replays, finish
from processes import Hosts, ring

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]


def test_in_bounded_windows_the_others_go_on_without_a_suspended_node(hosts: Hosts):
    a, b, c = made = hosts.make(3, ring(3), {"steps": 600, "window": "bounded"})
    for host in made:
        host.start()
    c.wait_for("progress", step=20)
    c.signal(signal.SIGSTOP)
    a.wait_for("member silent")
    b.wait_for("member silent")
    a.wait_for("progress", step=a.step + 50)
    c.signal(signal.SIGCONT)
    assert a.wait_for("member is back")["member"] == c.name
    a.wait_for("progress", received=3)
    results = finish(made)
    assert {result["updates"] for result in results} == {3 * 600}, "measured or declared as skipped"
    assert len({one.updates for one in check_replays(made)}) == 1


def test_in_strict_windows_the_others_say_for_whom_they_wait_and_go_on_with_it(hosts: Hosts):
    a, b, c = made = hosts.make(3, ring(3), {"steps": 100, "window": "strict"})
    for host in made:
        host.start()
    c.wait_for("progress", step=20)
    c.signal(signal.SIGSTOP)
    assert a.wait_for("member silent")["member"] == c.name
    assert a.wait_for("waiting")["waiting_for"] == [c.name]
    assert b.wait_for("waiting")["waiting_for"] == [c.name]
    c.signal(signal.SIGCONT)
    finish(made)
    assert {one.updates for one in check_replays(made)} == {3 * 100}


def test_in_bounded_windows_the_others_end_their_run_without_a_host_that_dies_for_good(hosts: Hosts):
    made = hosts.make(4, ring(4), {"steps": 200, "window": "bounded"})
    *others, victim = made
    for host in made:
        host.start()
    victim.wait_for("progress", step=31)
    victim.kill()
    results = finish(others)
    assert {result["steps"] for result in results} == {200}
    assert len({one.updates for one in check_replays(others)}) == 1
