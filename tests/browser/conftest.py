"""The status page of real daemons in a real browser: Debian's chromium, without a window."""

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import Page
from processes import Hosts, ring
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from strangers import StrangeNode, open_console

Settings = dict[str, Any]
"""By their bare names."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # chromium's sandbox does not work for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("no_proxy", "localhost")  # where chromedriver is
        made = Chrome(options=options, service=Service(driver))
    yield made
    made.quit()


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Iterator[Page]:
    """A page that must not have complained of anything by the end of the test."""
    made = Page(browser, tmp_path)
    made.console()
    yield made
    complaints = made.console()
    browser.get("about:blank")
    assert complaints == []


@pytest.fixture(scope="module")
def watched() -> tuple[int, Settings, Settings]:
    """How many hosts, their `[run]`, and what they have in `[node]`."""
    run = {"steps": 1_000_000, "window": "bounded", "learning_rate": 1e-4}  # so low that nothing is unlearned
    return 4, run, {"evaluate_every": 25, "evaluate_examples": 16}


@pytest.fixture(scope="module")
def hosts(
    browser: Chrome, watched: tuple[int, Settings, Settings], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hosts]:
    """Hosts on a ring, in a run that does not end while it is watched."""
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    count, run, node = watched
    for host in made.make(count, ring(count), run, node):
        host.start()
        assert host.process is not None
        os.setpriority(os.PRIO_PROCESS, host.process.pid, 10)  # the browser comes first, else it waits for them
    yield made
    made.close()


@pytest.fixture
def few_hosts(browser: Chrome, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


class Strange:
    """A node that trains by something else, served by a loop of its own. node: what it shows."""

    def __init__(self, folder: Path) -> None:
        self.node = StrangeNode()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._console = asyncio.run_coroutine_threadsafe(open_console(folder, self.node), self._loop).result(60)
        assert self._console.address is not None
        self.address = self._console.address
        self.hub = self._console.hub

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._console.close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def strange(browser: Chrome, tmp_path: Path) -> Iterator[Strange]:
    made = Strange(tmp_path)
    yield made
    made.close()
