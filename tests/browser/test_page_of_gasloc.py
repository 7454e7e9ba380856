"""The page of hosts that train by GASLoC: their figures, with whom they exchange, and no place for the rest."""

from typing import Any

import pytest
from pages import DESK, PHONE, READ_CLIPPED, READ_FAINT_TEXT, Page
from processes import Hosts
from test_page import address

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

RUN = {
    "mode": "gasloc",
    "task": "lm",
    "max_length": 16,
    "initial": "random",
    "steps": 1_000_000,
    "local_steps": 10,
}


@pytest.fixture(scope="module")
def watched() -> tuple[int, dict[str, Any], dict[str, Any]]:
    return 3, RUN, {"data": "embedded", "evaluate_every": 50, "evaluate_examples": 50}


@pytest.fixture
def running(hosts: Hosts, page: Page) -> Page:
    """The page of the first of the hosts, which all take part."""
    page.open(address(hosts.hosts[0]))
    page.wait_until(lambda page: page.step >= 100, "step 100")
    return page


def test_it_shows_what_gasloc_does_and_nothing_of_windows_and_updates(running: Page):
    assert running.text("state-reason") == "Takes part."
    assert "Perplexity" in running.facts("figures")
    assert running.facts("window-facts") == {}
    assert set(running.facts("updates")) == {"Rejected"}
    running.wait_until(lambda page: len(page.facts("algorithm-figures")) > 10, "figures")
    figures = running.facts("algorithm-figures")
    assert figures["Bytes sent"].endswith(("kB", "MB"))  # how many rounds were skipped by step 100 is chance
    assert figures["Consensus distance"].endswith("%")
    assert float(figures["Bytes per token"]) > 0
    assert figures["Exchange seconds"].endswith("s")
    assert int(figures["Tokens per second"].replace(",", "")) > 0
    running.wait_until(lambda page: page.facts("algorithm-figures")["Swarm tokens per second"] != "0", "the swarm")
    assert {"Mode": "gasloc", "Matching": "one", "Encoding": "bfloat16"}.items() <= running.facts("colophon").items()


def test_it_shows_who_exchanges_with_whom(running: Page):
    partner = {"h1", "h2", "nobody"}
    running.wait_until(lambda page: page.facts("algorithm-figures")["Exchanged with"] in partner - {"nobody"}, "one")
    assert running.facts("algorithm-figures")["Matched with"] in partner
    lines = "return document.querySelectorAll('#drawing .exchanging').length"
    running.wait_until(lambda page: page.read(lines) == 1, "one pair of three hosts")
    assert "thick lines" in running.text("hosts-text")


@pytest.mark.parametrize(("theme", "width"), [("light", PHONE), ("dark", DESK)])
def test_it_can_be_read(running: Page, hosts: Hosts, theme: str, width: int):
    running.open(address(hosts.hosts[0]), theme=theme, width=width)
    running.wait_until(lambda page: len(page.facts("algorithm-figures")) > 10, "figures")
    running.screenshot(f"gasloc-{theme}-{width}")
    assert running.read(READ_CLIPPED) == []
    faint = [one for one in running.read(READ_FAINT_TEXT) if one["contrast"] < one["least"]]
    assert faint == []
