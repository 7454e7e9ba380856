"""Whole nodes on links that TLS secures, as all are: certificates change, and who is not expected is not linked."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from clusters import PinnedCluster
from seedflood.identity import Identity

RUN = {"clients": 2, "steps": 60}


def metrics_of(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_nodes_train_together_over_tls_while_certificates_change(tmp_path):
    cluster = PinnedCluster(tmp_path)
    try:
        a = await cluster.start("a", [], RUN, {"then": "serve"})
        cluster.pins = {"a": a.identity.public_key}
        b = await cluster.start("b", ["a"], RUN)
        for step in range(2, RUN["steps"], 10):
            await cluster.until(lambda step=step: min(a.node.step, b.node.step) >= step)
            a.credentials.renew()
            b.credentials.renew()
        await cluster.until(lambda: a.result is not None and b.result is not None)
        assert a.result["digest"] == b.result["digest"]
        assert [counters.links_opened for counters in a.links.totals.stats().values()] == [1]
        assert a.links.credentials.handshakes == 1
    finally:
        await cluster.close()


async def test_a_host_that_is_not_the_pinned_one_is_not_linked(tmp_path):
    cluster = PinnedCluster(tmp_path)
    try:
        a = await cluster.start("a", [], RUN)
        cluster.pins = {"a": Identity.generate().public_key}
        b = await cluster.start("b", ["a"], RUN)
        await cluster.until(lambda: b.links.totals.faults["pin"])
        assert a.links.credentials.handshakes >= 1
        assert len(a.links.open) == len(b.links.open) == 0
        async with aiohttp.ClientSession() as session, session.get(f"http://{b.address}/metrics") as answer:
            assert metrics_of(await answer.text())["seedflood_peer_faults_total", "pin"] >= 1
    finally:
        await cluster.close()
