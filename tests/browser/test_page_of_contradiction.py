"""The page of a run in which hosts contradict the others: it says who, in plain words; where nobody can, nothing."""

import pytest
from pages import DESK, PHONE, READ_CLIPPED, READ_FAINT_TEXT

from seedflood.protocol.view import MemberStatus, MemberView

NAMES = ("ada", "bob", "cyd", "dan", "eve", "mallory")
HONEST = {"ada": 2.4, "bob": 3.1, "cyd": 2.8, "dan": 0.3}
LIARS = {"eve": -3.14, "mallory": -2.2}

READ_TONE = "return document.getElementById('state').dataset.tone"
READ_COLUMNS = """
    return Array.from(document.querySelectorAll("#members thead th"))
        .filter((cell) => cell.checkVisibility()).map((cell) => cell.textContent.split(" ")[0]);
"""

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def member(origin: int, name: str, reputation: float | None, status: MemberStatus) -> MemberView:
    contradicts = None if reputation is None else reputation < -1
    return MemberView(origin, name, status, 40, 0, None, 1, 0.004, reputation=reputation, contradicts=contradicts)


def show(strange, reputations: dict[str, float]) -> None:
    """Six hosts on a ring; the first serves the page."""
    statuses: list[MemberStatus] = ["self", "linked", "reachable", "reachable", "reachable", "linked"]
    members = tuple(
        member(origin, name, reputations.get(name), status)
        for origin, (name, status) in enumerate(zip(NAMES, statuses, strict=True), 1)
    )
    edges = (*((k, k + 1) for k in range(1, 6)), (1, 6))
    strange.hub.tally.has_updates = True
    strange.node.show(members=members, edges=edges, cut_vertices=(), blockers=())


def wait_for_names(page, names: str) -> None:
    """Until these are said to contradict the others."""
    sentence = f"These contradict the others, and their updates do not count: {names}."
    page.wait_until(lambda page: page.sentences("wrong") == [sentence], sentence)


def test_who_contradicts_is_marked_and_named_in_plain_words(strange, page):
    show(strange, HONEST | LIARS)
    page.open(strange.address)
    wait_for_names(page, "eve, mallory")
    rows = {name: tuple(cells[:2]) for name, cells in page.rows("members").items()}
    assert rows == {
        "ada": ("this node", "2.4"),
        "bob": ("linked", "3.1"),
        "cyd": ("by relay", "2.8"),
        "dan": ("by relay", "0.3"),
        "eve": ("contradicting", "-3.1"),
        "mallory": ("contradicting", "-2.2"),
    }
    assert page.read(READ_COLUMNS) == ["Host", "Condition", "Reputation", "Received", "Behind"]
    assert page.text("hosts-text").startswith("6 hosts: this node, 2 contradicting, 1 linked, 2 by relay.")
    assert (page.text("state"), page.facts("figures")["Hosts alive"]) == ("ready", "6 of 6")


def test_one_that_counts_again_is_not_named_any_more(strange, page):
    show(strange, HONEST | LIARS | {"eve": 1.0})
    page.open(strange.address)
    wait_for_names(page, "mallory")
    show(strange, HONEST)
    page.wait_until(lambda page: page.sentences("wrong") == [], "peace")
    assert page.rows("members")["eve"][:2] == ["by relay", "–"]


def test_a_host_that_contradicts_itself_says_so_of_itself_in_red(strange, page):
    show(strange, HONEST | {"ada": -2.0})
    page.open(strange.address)
    page.wait_for("state", "ready, but contradicts the others")
    wait_for_names(page, "this host")
    assert page.read(READ_TONE) == "bad"


def test_where_hosts_are_not_compared_nothing_is_said_of_it(strange, page):
    show(strange, {})
    page.open(strange.address)
    page.wait_for("state", "ready")
    assert page.read(READ_COLUMNS) == ["Host", "Condition", "Received", "Behind"]
    assert page.sentences("wrong") == []
    assert "Reputation" not in page.text("hosts-text")


@pytest.mark.parametrize(("theme", "width"), [("light", PHONE), ("dark", 1100), ("light", DESK), ("dark", DESK)])
def test_it_can_be_read_on_every_screen(strange, page, theme: str, width: int):
    show(strange, HONEST | LIARS)
    page.open(strange.address, theme=theme, width=width)
    wait_for_names(page, "eve, mallory")
    page.screenshot(f"contradiction-{theme}-{width}")
    assert page.read("return document.documentElement.scrollWidth") == width
    assert page.read(READ_CLIPPED) == []
    assert [text for text in page.read(READ_FAINT_TEXT) if text["contrast"] < text["least"]] == []
    assert page.unnamed_elements() == []
