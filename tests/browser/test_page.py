"""What the status page shows of a run, and that it can be read: by everybody, on every screen, without a network."""

import signal

import pytest
from pages import DESK, PHONE, READ_CLIPPED, READ_FAINT_TEXT, READ_MOVED_BY_LONG_FIGURES, WATCH_SHIFTS, Page
from processes import Host, Hosts, ring

from seedflood.cluster.ports import reserve_ports
from seedflood.operations.server import STATIC_FOLDER

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

WIDTHS = [PHONE, 768, 1100, DESK, 1920]

REFUSED = "net::ERR_CONNECTION_REFUSED"
"""What a browser itself says when nothing listens any more."""


def address(host: Host) -> str:
    """Where the newest process of the host serves its page: it says so while it is still loading."""
    while host.process is None or not (told := [line for line in host.events if line.get("event") == "loading"]):
        host.wait_for("loading")
    return told[-1]["http"]


# The hosts of a single test come first: those of the others train at full speed from the first of these on.


@pytest.mark.long
def test_a_node_that_dies_is_said_to_be_unreachable_until_it_answers_again(few_hosts: Hosts, page: Page):
    (host,) = few_hosts.make(1, [], {"steps": 1_000_000, "clients": 1})
    fixed = ("--set", f"node.http=127.0.0.1:{reserve_ports(1)[0]}")
    page.open(address(host.start(*fixed)))
    page.wait_until(lambda page: page.step >= 3, "step 3")
    assert not page.read("return document.getElementById('banner').checkVisibility()")
    host.kill()
    page.wait_for("banner-title", "This node cannot be reached.")
    assert page.read("return document.getElementById('banner').checkVisibility()")
    assert page.text("banner-text").startswith("No answer since ")
    page.screenshot("unreachable")
    host.start(*fixed)
    page.wait_until(lambda page: not page.read("return document.getElementById('banner').checkVisibility()"), "life")
    page.wait_for_steps(3)
    assert all(REFUSED in complaint for complaint in page.console())


def test_the_page_tells_a_whole_run_from_joining_to_its_end(few_hosts: Hosts, page: Page):
    first, second = few_hosts.make(2, ring(2)[:1], {"steps": 40}, {"then": "serve"})
    page.open(address(first.start()))
    page.wait_for("state", "joining")
    assert page.text("state-reason")
    page.screenshot("joining")
    second.start()
    page.wait_for("state", "finished")
    assert (page.text("step"), page.text("steps"), page.facts("figures")["Time left"]) == ("40", "40", "done")
    page.screenshot("finished")
    first.signal(signal.SIGTERM)
    page.wait_for("banner-title", "This node has ended.")
    assert all(REFUSED in complaint for complaint in page.console())


@pytest.fixture
def running(hosts: Hosts, page: Page) -> Page:
    """The page of the first of four hosts, all of them there and past their tenth step."""
    page.open(address(hosts.hosts[0]))
    page.wait_for_fact("figures", "Hosts alive", "4 of 4")
    page.wait_until(lambda page: page.step >= 10, "step 10")
    return page


def test_a_run_is_seen_to_move(running: Page):
    assert running.text("node-name") == "h0"
    assert running.text("state") == "ready"
    running.wait_for_steps(5)
    running.wait_until(lambda page: page.facts("figures")["Speed"] != "–", "a speed")
    assert float(running.facts("figures")["Loss"]) > 0
    assert running.facts("figures")["Accuracy"].endswith("%")
    notes = running.notes("figures")
    assert notes["Loss"].startswith("at step ")
    assert notes["Accuracy"].startswith("at step ")
    drawn = "return Array.from(document.querySelectorAll('.plot'), (plot) => plot.querySelectorAll('canvas').length)"
    assert running.read(drawn) == [1, 1, 1]


def test_hosts_and_links_are_shown_as_they_are(running: Page):
    members = running.rows("members")
    assert {name: cells[0] for name, cells in members.items()} == {
        "h0": "this node",
        "h1": "linked",
        "h2": "by relay",
        "h3": "linked",
    }
    linked = {"h1": "connected", "h3": "connected"}
    running.wait_until(lambda page: {name: cells[0] for name, cells in page.rows("links").items()} == linked, "links")
    lines = "return Array.from(document.querySelectorAll('#drawing line'), (line) => line.getAttribute('class')).sort()"
    running.wait_until(lambda page: page.read(lines) == ["other", "other", "own", "own"], "the ring")
    label = running.read("return document.getElementById('drawing').getAttribute('aria-label')")
    assert label == "4 hosts: this node, 2 linked, 1 by relay."
    assert running.text("hosts-text").startswith(label)


def test_traffic_is_compared_with_what_gossip_would_cost(running: Page):
    running.wait_until(lambda page: page.text("traffic-text").endswith((" MB.", " GB.")), "the cost of gossip")
    assert running.text("traffic-sent").endswith("kB")


FIGURES = {0.0512: "0.051", 12.345: "12.3", 1234.5: "1,235", 1e8: "100,000,000", 1e304: "1.0e304"}


def test_a_figure_of_any_size_is_short(running: Page):
    read = f"return import('./static/formats.js').then(({{ figure }}) => {[*FIGURES]}.map((one) => figure(one)))"
    assert running.read(read) == [*FIGURES.values()]


LABELS: list[tuple[str, list[float], list[str]]] = [
    ("accuracy", [0.46, 0.465, 0.47], ["46.0 %", "46.5 %", "47.0 %"]),
    ("accuracy", [0.46, 0.48, 0.5], ["46 %", "48 %", "50 %"]),
    ("loss", [0.691, 0.692, 0.693], ["0.691", "0.692", "0.693"]),
    ("perplexity", [12000, 12000.2], ["12000.0", "12000.2"]),
]


def test_no_two_labels_of_an_axis_are_alike(running: Page):
    for name, values, texts in LABELS:
        read = f"""
            return import('./static/formats.js').then(({{ describeFigures, labels }}) =>
                labels({values}, describeFigures({{ {name}: [] }})[0].writeAxis));
        """
        assert running.read(read) == texts


SHOW_NAMESAKES = """
    const [status, { showWindow }] = await Promise.all([
        fetch("api/status").then((answer) => answer.json()),
        import("./static/panels.js"),
    ]);
    const blocker = { kind: "window", name: "beta", step: 3, seconds: 99, reason: "step 3 of beta has not come" };
    status.blockers = ["0b", "be"].map((origin) => ({ ...blocker, origin }));
    for (let poll = 0; poll < 3; poll++) showWindow(status);
    return document.querySelectorAll("#blockers li").length;
"""


def test_two_hosts_of_one_name_are_waited_for_in_two_lines(running: Page):
    assert running.read(f"return (async () => {{ {SHOW_NAMESAKES} }})()") == 2


def test_events_can_be_narrowed_to_warnings(running: Page):
    running.wait_until(lambda page: page.read("return document.querySelectorAll('#events li').length > 0"), "events")
    running.read(
        "const narrowed = document.getElementById('events-narrowed');"
        "narrowed.checked = true; narrowed.dispatchEvent(new Event('change'));"
    )
    assert running.read("return document.querySelectorAll('#events li.info').length") == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off(running: Page, hosts: Hosts, width: int):
    """The dark page has other colours, and nothing else."""
    running.open(address(hosts.hosts[0]), width=width)
    running.wait_for("state", "ready")
    running.screenshot(f"running-{width}")
    assert running.read("return document.documentElement.scrollWidth") == width
    assert running.read(READ_CLIPPED) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_the_contrast_of_level_aa(running: Page, hosts: Hosts, theme: str):
    running.open(address(hosts.hosts[0]), theme=theme)
    running.wait_for("state", "ready")
    running.screenshot(f"running-{theme}")
    texts = running.read(READ_FAINT_TEXT)
    assert len(texts) > 60
    assert [text for text in texts if text["contrast"] < text["least"]] == []


def test_all_that_is_announced_has_a_name(running: Page):
    assert running.unnamed_elements() == []


@pytest.mark.long
def test_nothing_jumps_while_it_is_read(running: Page):
    running.wait_until(lambda page: page.facts("figures")["Speed"] != "–", "a speed")
    running.read(WATCH_SHIFTS)
    running.wait_for_steps(100)
    assert running.read("return window.shifts") == []


def test_a_step_with_a_digit_more_does_not_move_the_number_of_steps(running: Page):
    running.wait_until(lambda page: page.read("return document.getElementById('steps').textContent") != "–", "steps")
    place = "return document.getElementById('steps').getBoundingClientRect().left"
    running.read("document.getElementById('step').textContent = '9'")
    before = running.read(place)
    running.read("document.getElementById('step').textContent = '999,999'")
    assert running.read(place) == before


def test_figures_that_grow_long_move_nothing(running: Page, hosts: Hosts):
    moved = {}
    for width in WIDTHS:
        running.open(address(hosts.hosts[0]), width=width)
        running.wait_until(lambda page: page.facts("figures").get("Spent so far", "–") != "–", "what was spent")
        moved[width] = running.read(READ_MOVED_BY_LONG_FIGURES)
    assert moved == {width: [] for width in WIDTHS}


def test_nothing_is_taken_from_elsewhere_and_nothing_inline_is_needed(running: Page, hosts: Hosts):
    names = running.read("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names
    assert {name.split("/")[2] for name in names} == {address(hosts.hosts[0])}
    inline = "return document.querySelectorAll('script:not([src]), style, [onclick], [onload]').length"
    assert running.read(inline) == 0


def test_no_text_of_others_can_become_markup():
    modules = {path.name: path.read_text() for path in STATIC_FOLDER.glob("*.js")}
    assert "page.js" in modules
    risky = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser")
    assert {(name, word) for name, text in modules.items() for word in risky if word in text} == set()


@pytest.mark.long
def test_a_killed_host_is_shown_as_silent_and_as_linked_again_when_it_is_back(running: Page, hosts: Hosts):
    lost = hosts.hosts[1]
    lost.kill()
    running.wait_for_row("members", "h1", "silent")
    running.wait_for_row("links", "h1", "dialling")
    assert running.facts("figures")["Hosts alive"] == "3 of 4"
    drawn = "return document.querySelector('#drawing .silent title').textContent"
    assert running.read(drawn) == "h1: silent"
    running.screenshot("lost")
    running.wait_for_steps(5)
    lost.start()
    running.wait_for_row("members", "h1", "linked")
    running.wait_for_row("links", "h1", "connected")
    running.wait_for_fact("figures", "Hosts alive", "4 of 4")
    running.screenshot("back")
