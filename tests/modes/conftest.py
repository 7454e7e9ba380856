"""Whole nodes in one loop, of a mode that the daemon does not know."""

import aiohttp
import pytest
import pytest_asyncio
from lot_engine import add_lots

from clusters import Cluster
from seedflood.config import SECTIONS
from seedflood.host.modes import MODES


class LotCluster(Cluster):
    def run_settings(self, run):
        return {"mode": "lots", "steps": 5} | run


@pytest.fixture
def lots():
    """There is a mode "lots" as long as the test lasts."""
    before = [dict(registry) for registry in (SECTIONS, MODES)]
    add_lots()
    yield
    for registry, entries in zip((SECTIONS, MODES), before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest_asyncio.fixture
async def cluster(lots, tmp_path):
    one = LotCluster(tmp_path)
    yield one
    await one.close()


@pytest_asyncio.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session
