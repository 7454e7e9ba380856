"""A closed run that trains by GASLoC."""

import pytest
from test_gasloc import GaslocCluster

from clusters import Closed
from seedflood.errors import RemovedError


async def test_a_host_that_is_removed_is_nobodys_partner_any_more(tmp_path):
    cluster = GaslocCluster(tmp_path)
    try:
        closed = Closed(cluster, tmp_path)
        closed.enrol("a", "b", "c")
        old = closed.copy("old.json")
        run = {"clients": 3, "operator": closed.operator.public_key.hex(), "steps": 6000}
        a, b, c = [
            await cluster.start(name, peers, run, {"roster": old, "evaluate_examples": 0})
            for name, peers in (("a", []), ("b", ["a"]), ("c", ["a", "b"]))
        ]
        gone = c.node.origin
        await cluster.until(lambda: gone in a.links.open and gone in b.links.open and a.node.step >= 12)
        closed.remove("c")
        closed.give(b)
        await cluster.until(c.ended.done)
        with pytest.raises(RemovedError):
            await c.ended
        step = a.node.step
        await cluster.until(lambda: a.node.step >= step + 18 and gone not in a.links.open)
        assert a.access.roster == closed.roster
        assert gone not in a.node.membership.present()
    finally:
        await cluster.close()
