"""Hosts whose shares of the rows do not fit together are told."""

import json

import pytest

from seedflood.host.seedflood.shares import OTHER_ROWS, REPLACED, SAME_SHARE, misfit
from seedflood.protocol.seedflood.statement import Rows

RUN = {"clients": 2, "steps": 4, "batch_size": 2}


@pytest.mark.parametrize(
    ("ours", "theirs", "wrong"),
    [
        (Rows(0, 2, b"a"), Rows(1, 2, b"a"), None),
        (Rows(0, 2, b"a"), Rows(0, 2, b"a"), SAME_SHARE),
        (Rows(0, 2, b"a"), Rows(1, 2, b"b"), OTHER_ROWS),
        (Rows(0, 2, b"a"), Rows(0, 3, b"a"), None),
        (Rows(0, 1, b"a"), Rows(0, 1, b"a"), None),
        (Rows(0, 1, b"a"), Rows(0, 1, b"b"), None),
    ],
)
def test_shares_of_equal_rows_fit_if_they_differ_and_whole_rows_always_do(ours, theirs, wrong):
    assert misfit(ours, theirs) == wrong


@pytest.mark.parametrize(("place", "rows", "wrong"), [(1, 12, None), (0, 12, SAME_SHARE), (1, 13, OTHER_ROWS)])
async def test_each_host_hears_once_of_a_host_whose_share_does_not_fit(cluster, tmp_path, place, rows, wrong):
    files = []
    for count in (12, rows):
        path = tmp_path / f"{count}-{len(files)}.jsonl"
        lines = ({"text": f"row {k}", "label": k % 2} for k in range(count))
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files.append(str(path))
    run = {**RUN, "task": "prompted", "template": "{text} it was", "label_words": ["terrible", "great"]}
    await cluster.start("a", [], run, {"data": files[0], "shard": "1/2"})
    await cluster.start("b", ["a"], run, {"data": files[1], "shard": f"{place + 1}/2"})
    await cluster.finish()
    for daemon in cluster.daemons.values():
        told = [event["event"] for event in daemon.hub.events]
        assert [event for event in told if event in (SAME_SHARE, OTHER_ROWS)] == [wrong] * (wrong is not None)


@pytest.mark.parametrize(("shard", "rows", "is_told"), [("1/1", 12, False), ("1/1", 13, True), ("1/2", 12, True)])
async def test_a_host_that_is_restarted_with_other_rows_says_so(cluster, tmp_path, shard, rows, is_told):
    path = tmp_path / "rows.jsonl"
    run = {"clients": 2, "steps": 4, "batch_size": 2, "task": "lm"}
    for count, share in ((12, "1/1"), (rows, shard)):
        path.write_text("".join(json.dumps({"text": f"row {k}"}) + "\n" for k in range(count)))
        daemon = await cluster.start("a", [], run, {"data": str(path), "shard": share})
        await cluster.until(lambda: bool(cluster.daemons["a"].engine.node.membership.to_send()))
        told = [event["event"] for event in daemon.hub.events]
        await daemon.close()
    assert (REPLACED in told) == is_told
