"""What a node keeps is as little as is promised; a table that grows, or that nobody has thought of, is seen."""

import pytest
from worlds import STORMY, make_world, run_to_the_end

from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.divergence import REMEMBERED
from seedflood.protocol.seedflood.outputs import ClosedWindow, Measure
from seedflood.protocol.swarm.roster import Roster
from simulation.bounds import parts_of
from simulation.seedflood.bounds import BOUNDS, CLAIMED, find_ahead, find_excess, find_waiting


def make_busy(window="bounded", **settings):
    world = make_world("ring", 4, steps=24, window=window, weather=STORMY, **settings)
    world.start()
    world.run_until_step(10)
    return world


@pytest.mark.parametrize("window", ["strict", "bounded"])
def test_tables_stay_within_their_bounds_while_hosts_come_and_go(window):
    world = make_busy(window)
    for index in range(4):
        world.crash(index, down_seconds=1.0)
        world.run_for(2.0)
        for host in world.hosts:
            assert not host.is_up or find_excess(host.driver) == []
    run_to_the_end(world)
    assert all(find_excess(host.driver) == [] for host in world.hosts)


def test_a_table_of_neighbours_that_remembers_who_is_gone_is_seen():
    host = make_busy().hosts[0]
    host.node.seedflood.exchange.divergence._theirs.update({k: {} for k in range(3)})
    assert find_excess(host.driver) == ["keeps 5 in DivergenceDetector._theirs, more than 2"]


def test_a_table_in_a_table_that_grows_is_seen():
    host = make_busy().hosts[0]
    theirs = next(iter(host.node.seedflood.exchange.divergence._theirs.values()))
    theirs.update({bytes([k]): b"" for k in range(REMEMBERED + 1)})
    assert f"more than {REMEMBERED}" in find_excess(host.driver)[0]


def test_a_table_that_nobody_has_bounded_is_seen():
    host = make_busy().hosts[0]
    host.node.seedflood.flood.log = []
    assert find_excess(host.driver) == ["keeps Flood.log, which has no bound"]


def test_every_bound_is_that_of_a_part_that_there_is():
    host, relay = make_busy(relays=1).hosts[0::4]
    host.node.seedflood.windows.open(11, 0.0)
    host.node.admission.access.roster = Roster(1)  # as in a closed run
    parts = [part for one in (host, relay) for part in parts_of(one.driver, CLAIMED)]
    kinds = {kind.__name__ for part in parts for kind in type(part).__mro__}
    assert {name.partition(".")[0] for name in BOUNDS} <= kinds


def closed(step):
    return ClosedWindow((step, step), (), 0, 0, (), "bound", 0.0)


def test_bundles_that_wait_when_a_window_has_closed_are_counted():
    node, most = make_busy().hosts[0].node, 4 * 64
    node.seedflood.holdings.pending._take(1 << 40)
    bundles = [make_bundle(1, step, ((1, 1),)) for step in range(most + 1)]
    node.seedflood.holdings.pending.add(bundles[:most])
    assert find_waiting(node, closed(9)) is None
    node.seedflood.holdings.pending.add(bundles[most:])
    assert find_waiting(node, closed(9)) == f"leaves {most + 1} bundles waiting behind step 9"


def test_in_strict_windows_nobody_is_further_ahead_than_the_delay():
    node = make_busy("strict", delay=2).hosts[0].node
    node.seedflood.holdings.pending._take(1 << 40)
    node.seedflood.holdings.pending.add([make_bundle(7, 12, ((1, 1),))])
    assert find_ahead(node, Measure(10, 1), lambda _: True) is None
    node.seedflood.holdings.pending.add([make_bundle(7, 13, ((1, 1),))])
    assert find_ahead(node, Measure(10, 1), lambda _: True) == "measures step 10 while 1 bundles of later rounds wait"
    assert find_ahead(node, Measure(10, 1), lambda _: False) is None
