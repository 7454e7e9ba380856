"""A process that used links ends by itself, at once, and without a word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import seedflood

SCRIPT = """
import asyncio, sys
import uvloop
from conftest import Node
from seedflood.protocol.seedflood.bundles import Updates, make_bundle

async def main(drains):
    b = await Node("b").start()
    a = await Node("a").start(b, "127.0.0.1:1", "no-such-host.invalid:1")
    c = await Node("c", run='{"other": 1}').start(b)
    await a.until(lambda: a.linked)
    await b.until(lambda: b.linked)
    await c.until(lambda: c.refusals)
    b.journal = lambda frontier: (Updates((make_bundle(1, k, ((1, 1),), 0, bytes(64)),)) for k in range(10**9))
    a.links.pull(b.origin, ())
    await a.until(lambda: a.bundles)
    for k in range(1000):
        a.links.send(b.origin, [Updates((make_bundle(2, k, ((1, 1),), 0, bytes(64)),))])
    if drains:
        await a.links.drain(5)
        assert len([one for one in b.bundles if one.origin == 2]) == 1000
    for node in (b, a, c):
        await node.links.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in left if "cygrpc" not in repr(task)], left

runner = {"uvloop": uvloop.run, "asyncio": asyncio.run}[sys.argv[1]]
runner(main(sys.argv[2] == "drain"))
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("end", ["drain", "close"])
def test_a_process_ends_silently(loop: str, end: str) -> None:
    path = os.pathsep.join([str(Path(seedflood.__file__).parent.parent), str(Path(__file__).parent)])
    command = [sys.executable, "-W", "error", "-c", SCRIPT, loop, end]
    environment = os.environ | {"PYTHONPATH": path}
    ended = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60, env=environment)
    log = ("cannot reach 127.0.0.1:", "cannot reach no-such-host", "no link: 127.0.0.1:", "refused ipv4:127.0.0.1: ")
    lines = ended.stderr.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert [line for line in lines if not line.startswith(log)] == []
    assert len(lines) <= 9, "a sentence is said once, not at every dial"
    assert ended.stdout == ""
