"""The page of a swarm of a thousand hosts: it can be read, searched, and costs no more than a small one."""

from dataclasses import replace

import pytest
from pages import DESK, PHONE, READ_CLIPPED, READ_FAINT_TEXT, Page

from seedflood.cluster.topology import make_topology
from seedflood.protocol.view import Edge, MemberStatus, MemberView

HOSTS = 1000
SILENT, LEFT = 16, 22
UPDATES = 8
CALLS_PER_HOST_MAX = 200  # some 130 are made

READ_COVERED = """
    const names = Array.from(document.querySelectorAll("#drawing text:last-child"));
    const boxes = names.map((name) => name.getBoundingClientRect());
    const areBeside = (a, b) => a.left < b.right && b.left < a.right;
    const meets = (a, b) => areBeside(a, b) && a.top + 3 < b.bottom - 3 && b.top + 3 < a.bottom - 3;
    return boxes.filter((a, k) => boxes.some((b, other) => k !== other && meets(a, b))).map((box) => box.top);
"""
"""Names of drawn hosts that another name covers. The height of a line is more than that of its letters."""

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def make_swarm(hosts: int = HOSTS) -> tuple[tuple[MemberView, ...], tuple[Edge, ...]]:
    """Members and links. The first of them serves the page. The last of many are silent, and those before them left."""
    edges = tuple((a + 1, b + 1) for a, b in make_topology("random-regular", hosts, seed=1))
    neighbours = {a + b - 1 for a, b in edges if 1 in (a, b)}

    def status(k: int) -> MemberStatus:
        if k > HOSTS - SILENT - LEFT:
            return "silent" if k > HOSTS - SILENT else "left"
        return "self" if k == 1 else "linked" if k in neighbours else "reachable"

    numbers = range(1, hosts + 1)
    return tuple(MemberView(k, f"host-{k:04}", status(k), 400, 0, None, 1, 0.004) for k in numbers), edges


@pytest.fixture
def crowd(strange, page: Page) -> Page:
    members, edges = make_swarm()
    strange.hub.tally.has_updates = True
    strange.node.show(members=members, edges=edges, figures={}, cut_vertices=())
    page.open(strange.address)
    page.wait_until(lambda page: len(page.rows("members")) > 2, "hosts")
    return page


def search(page: Page, text: str) -> None:
    page.read(
        "const field = document.getElementById('members-search');"
        f"field.value = '{text}'; field.dispatchEvent(new Event('input'))"
    )


def test_so_many_are_not_drawn_and_all_of_them_are_counted(crowd: Page):
    assert not crowd.read("return document.getElementById('drawing').checkVisibility()")
    assert crowd.text("hosts-text").startswith(f"1,000 hosts: this node, {SILENT} silent, ")
    assert f" {LEFT} left." in crowd.text("hosts-text")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_two_dozen_are_drawn_and_no_name_covers_another(crowd: Page, strange, theme: str, width: int):
    members, edges = make_swarm(24)
    strange.node.show(members=members, edges=edges)
    crowd.open(strange.address, theme=theme, width=width)
    crowd.wait_until(lambda page: len(page.rows("members")) == 24, "hosts")
    crowd.screenshot(f"two-dozen-{theme}-{width}")
    assert len(crowd.read("return Array.from(document.querySelectorAll('#drawing line'))")) == len(edges)
    assert crowd.read(READ_COVERED) == []
    assert crowd.read(READ_CLIPPED) == []


def test_the_table_shows_the_worst_first_and_finds_the_others(crowd: Page):
    conditions = [cells[0] for cells in crowd.rows("members").values()]
    assert conditions[: SILENT + 1] == ["this node", *["silent"] * SILENT]
    assert crowd.text("members-count") == "60 of 1,000, worst first"
    search(crowd, "HOST-0777 ")
    assert list(crowd.rows("members")) == ["host-0777"]
    search(crowd, "left")
    assert {cells[0] for cells in crowd.rows("members").values()} == {"left"}
    assert crowd.text("members-count") == f"{LEFT} of {LEFT}, worst first"


def test_the_work_of_an_update_grows_with_the_hosts_and_its_changes_with_what_is_shown(crowd: Page, strange):
    members, edges = strange.node.shown.members, strange.node.shown.edges
    crowd.watch_work()
    for k in range(UPDATES):
        step = 401 + k
        moved = tuple(replace(one, mark=step - 7 * (one.origin % (k + 2) == 0)) for one in members)
        strange.node.show(members=moved, edges=edges[: -1 - k])
        crowd.wait_until(lambda page, step=step: f"{step:,}" in page.rows("members")["host-0001"], f"step {step}")
        shown, calls, changes = crowd.count_work()
        assert HOSTS < calls < CALLS_PER_HOST_MAX * HOSTS * shown
        assert len(crowd.rows("members")) < changes < HOSTS * shown


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_can_be_read(crowd: Page, strange, width: int):
    crowd.open(strange.address, width=width)
    crowd.wait_until(lambda page: len(page.rows("members")) > 2, "hosts")
    crowd.screenshot(f"many-{width}")
    assert crowd.read("return document.documentElement.scrollWidth") == width
    assert crowd.read(READ_CLIPPED) == []
    assert [text for text in crowd.read(READ_FAINT_TEXT) if text["contrast"] < text["least"]] == []
    assert crowd.unnamed_elements() == []
