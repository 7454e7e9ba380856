"""Daemons that audit each other: who tells what it did not measure is named by all others, and nobody else is."""

import json
from dataclasses import replace

import pytest

from seedflood.host.seedflood.audit import Finding
from seedflood.identity import verify
from seedflood.protocol.seedflood.bundles import LOSS_BYTES

RUN = {"steps": 120, "train_examples": 64, "window": "strict"}
GRADIENT = {"estimate": "gradient", "rank": 4, "refresh_period": 16, "local_steps": 2}
DELAYED = {"local_steps": 2, "delay": 1, "steps": 240}
"""A sign turned in a round whose slopes are small is not seen, and chance picks whom a host audits. Of 60 rounds one in
fifty hosts has named nobody, of 120 one in 20,000."""
ESTIMATES = (
    pytest.param({}, id="two-sided", marks=pytest.mark.long),
    pytest.param(DELAYED, id="two-sided, delayed"),
    pytest.param(GRADIENT, id="gradient in local steps", marks=pytest.mark.long),
)


def forge(daemon):
    """From now on this host tells the opposite of what it has measured."""
    trainer = daemon.engine.trainer
    measure = trainer.measure

    def measure_and_forge(origin, step, count):
        measured = measure(origin, step, count)
        return replace(measured, probes=tuple(opposite(told) for told in measured.probes))

    def opposite(told):
        if isinstance(told, tuple):
            return told[0], -told[1]
        compression, end = trainer.compression, len(told) - LOSS_BYTES
        starts = range(compression.rows_at, end, compression.sparse.row_bytes)
        kept = {*range(compression.exponents), *starts, *(start + 1 for start in starts), end, end + 1}  # all but signs
        return bytes(one if k in kept else 255 - one for k, one in enumerate(told))

    trainer.measure = measure_and_forge


@pytest.mark.parametrize("changes", ESTIMATES)
async def test_a_forger_is_named_by_all_others_and_nobody_else_is(cluster, changes):
    run = {**RUN, "clients": 3, **changes}
    a = await cluster.start("a", [], run, {"shard": "1/3", "audit": 1.0})
    b = await cluster.start("b", ["a"], run, {"shard": "2/3", "audit": 1.0})
    c = await cluster.start("c", ["a", "b"], run, {"shard": "3/3"})
    forge(c)
    results = await cluster.finish()
    assert len({result["digest"] for result in results}) == 1
    for daemon in (a, b):
        audits = daemon.engine.auditor.audits
        assert audits.count > 20
        assert set(audits.named) == {c.node.origin}
        view = daemon.engine.view(0.0)
        assert view.figures["audit_findings"] == 1
        assert "c: " in view.words["audit"]
        (path,) = (daemon.settings.node.state / "findings").iterdir()
        check_signature(json.loads(path.read_text()), daemon, c)
    assert c.engine.auditor is None
    assert "audits" not in c.engine.view(0.0).figures


def check_signature(found, finder, named):
    finding = Finding(named.node.origin, tuple(found["steps"]), found["audits"])
    key = bytes.fromhex(found["finder"])
    assert finder.node.membership.get(finder.node.origin).public_key == key
    message = finding.signed_bytes(bytes.fromhex(found["run_id"]), key)
    assert verify(key, message, bytes.fromhex(found["signature"]))
    assert found["origin"] == f"{named.node.origin:016x}"


async def test_honest_hosts_name_nobody_whatever_their_dtype(cluster):
    run = {**RUN, "clients": 3, "steps": 60}
    a = await cluster.start("a", [], run, {"audit": 1.0})
    b = await cluster.start("b", ["a"], run, {"audit": 1.0, "threads": 1})
    c = await cluster.start("c", ["a", "b"], run, {"dtype": "bfloat16", "audit": 1.0})
    await cluster.finish()
    assert a.engine.auditor.audits.count > 30
    assert a.engine.auditor.audits.named == b.engine.auditor.audits.named == {}
    assert c.engine.auditor is None
    assert any("does not audit" in event["event"] for event in c.hub.events)


async def test_rows_that_are_not_known_here_are_not_audited(cluster, tmp_path):
    run = {**RUN, "clients": 2, "steps": 10}
    a = await cluster.start("a", [], run, {"shard": "1/2", "audit": 1.0})
    await cluster.start("b", ["a"], run, {"shard": "1/1"})
    await cluster.finish()
    assert a.engine.auditor.audits.count == 0
