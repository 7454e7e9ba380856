"""Whole nodes in one loop."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from clusters import Cluster


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    one = Cluster(tmp_path)
    yield one
    await one.close()
