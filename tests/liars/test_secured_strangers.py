"""A stranger at the port of a daemon that speaks TLS, as an independent implementation.

It is `secured.mjs`: Node.js, grpc-js, and certificates that are spelled byte by byte. It links with a key and a
certificate of its own, and in no other way.

Meanwhile two daemons train, go on, and end with one digest.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from members import HERE, PROTO, statement_layout

from clusters import SecuredCluster
from seedflood.protocol.swarm.messages import Hello
from seedflood.transport import certificates

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(300)]

RUN = {"clients": 2, "steps": 400, "window": "bounded"}


@pytest_asyncio.fixture
async def cluster(packages: None, tmp_path: Path) -> AsyncIterator[SecuredCluster]:
    one = SecuredCluster(tmp_path)
    await one.start("a", [], RUN)
    await one.start("b", ["a"], RUN)
    yield one
    await one.close()


async def stranger(cluster: SecuredCluster, kind: str) -> dict[str, object]:
    daemon = cluster.daemons["a"]
    hello = daemon.hello()
    facts = {
        "run_id": hello.run_id.hex(),
        "base_digest": hello.base_digest.hex(),
        "protocol_version": Hello.__dataclass_fields__["protocol_version"].default,
        "statement": statement_layout(),
        "tls": {
            "authority": certificates.authority().decode(),
            "extension": certificates.EXTENSION.dotted_string,
            "valid_seconds": certificates.VALID_SECONDS,
        },
    }
    words = ["node", str(HERE / "secured.mjs"), str(PROTO), json.dumps(facts), f"127.0.0.1:{daemon.port}", kind]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()[-3000:]
    said: dict[str, object] = json.loads(out)
    return said


OPENS_NOTHING = ("none", "foreign", "expired", "plain")
REFUSED = {"unsigned": "certificate", "stolen": "certificate", "prolonged": "certificate", "another": "identity"}


async def test_a_stranger_links_as_itself_and_in_no_other_way(cluster: SecuredCluster) -> None:
    a, b = cluster.daemons["a"], cluster.daemons["b"]
    said = await stranger(cluster, "honest")
    assert (said["proven"], said["code"]) == (a.identity.public_key.hex(), grpc.StatusCode.OK.value[0])
    assert said["frames"]
    for kind in OPENS_NOTHING:
        begun = a.links.handshakes
        said = await stranger(cluster, kind)
        assert (said["proven"], said["frames"], said["code"]) == (None, 0, grpc.StatusCode.UNAVAILABLE.value[0]), said
        assert a.links.handshakes > begun
    for kind, reason in REFUSED.items():
        counted, step = a.links.faults()[reason], a.node.step
        said = await stranger(cluster, kind)
        assert said["proven"] == a.identity.public_key.hex()
        assert (said["frames"], said["code"]) == (0, grpc.StatusCode.PERMISSION_DENIED.value[0])
        assert json.loads(str(said["details"]))["reason"] == reason
        assert a.links.faults()[reason] == counted + 1
        await cluster.until(lambda step=step: min(a.node.step, b.node.step) > step)
    first, second = await cluster.finish()
    assert first["digest"] == second["digest"]
    assert [counters.links_opened for name, counters in a.link_counters() if name == "b"] == [1]
