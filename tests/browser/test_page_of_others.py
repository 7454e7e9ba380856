"""The page of a node that does not train by SeedFlood: it shows what there is, and no place for what is not."""

import pytest
from pages import DESK, PHONE, READ_CLIPPED, READ_FAINT_TEXT, Page

from seedflood.operations.rise import Best, Rise
from seedflood.protocol.view import Blocker, RemovalView, RosterView

READ_TONE = "return document.getElementById('state').dataset.tone"

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.fixture
def shown(strange, page: Page) -> Page:
    page.open(strange.address)
    page.wait_for("state", "ready")
    return page


def test_what_the_algorithm_has_not_has_no_place(shown: Page):
    assert shown.facts("window-facts") == {}
    assert shown.facts("updates") == {"Rejected": "3"}
    assert shown.text("traffic-sent") == "476 kB"
    assert "Exchanging" not in shown.text("traffic-text")
    heads = "return Array.from(document.querySelectorAll('#members thead th'), (cell) => cell.textContent)"
    assert shown.read(heads) == ["Host", "Condition"]
    assert "epoch" not in shown.text("progress-text")


def test_its_settings_and_its_journal_stand_at_the_foot(shown: Page):
    foot = shown.facts("colophon")
    assert {
        "Mode": "gossip",
        "Partners": "2",
        "Share": "0.5",
        "Journal": "41 kB",
        "Records": "160",
    }.items() <= foot.items()
    assert not {"Window", "Refresh period", "Local steps"} & foot.keys()


def test_its_figures_are_shown_and_one_of_them_stands_for_an_evaluation(shown: Page, strange):
    assert shown.facts("algorithm-figures") == {"Mean": "3.25", "Spread": "1.7e-4", "Pairs met": "1,234"}
    assert shown.facts("figures")["Mean"] == "3.25"
    strange.node.show(figures={"mean": 3.5, "spread": float("nan")})
    shown.wait_for_fact("figures", "Mean", "3.50")
    assert shown.facts("algorithm-figures") == {"Mean": "3.50", "Spread": "–"}


def test_what_a_model_wrote_is_text_and_never_markup(shown: Page, strange):
    said = "2+2= → <img src=x onerror=alert(1)> 4 (reward 0)"
    strange.node.show(words={"worst_text": said})
    shown.wait_for_fact("samples", "Worst text", said)
    assert shown.read("return document.querySelectorAll('#samples img').length") == 0


def test_it_warns_of_hosts_that_are_the_only_way_between_others(shown: Page, strange):
    assert shown.sentences("wrong") == []
    strange.node.show(cut_vertices=(2,))
    shown.wait_until(lambda page: "through beta alone" in page.text("wrong"), "a warning")


def test_it_says_for_whom_it_waits_in_the_words_of_the_algorithm(shown: Page, strange):
    assert shown.text("window-title") == "Waiting"
    assert shown.text("window-waiting") == "Waits for beta."
    assert shown.sentences("blockers") == ["Companion (beta), for 12 s."]
    assert shown.text("state-reason") == "Has waited for 12 s: companion (beta)."
    strange.node.show(blockers=())
    shown.wait_for("window-waiting", "Waits for nobody.")
    assert shown.text("state-reason") == "Takes part."


def test_it_says_who_may_take_part(shown: Page, strange):
    assert shown.text("roster") == "Open run: whoever knows its settings may take part."
    strange.node.show(roster=RosterView(7, 4, 1), refused={"stranger": 12, "payload": 3})
    shown.wait_for("roster", "Closed run: 4 hosts on roster 7; 12 messages of others refused.")
    gone = [RemovalView(k, f"h{k}", k > 1, k > 2, ((0, 9),), 0, bytes(32), (), (), ()) for k in (1, 2, 3)]
    strange.node.show(roster=RosterView(8, 4, 3, tuple(gone), contradicted=1), refused={})
    shown.wait_for("roster", "Closed run: 4 hosts on roster 8.")
    assert shown.sentences("wrong") == [
        "Removed, and not cut off yet: h1 (seedflood roster remove --node).",
        "Cut off, and updates that count still lack here: h2.",
        "A cut contradicts compacted epochs, which stand.",
    ]


def test_a_node_that_stands_still_says_so(shown: Page, strange):
    strange.hub.steps_per_second = lambda: 0.0
    shown.wait_for_fact("figures", "Time left", "stands still")
    assert shown.facts("figures")["Speed"] == "0.00"


def test_a_node_that_has_waited_for_minutes_says_so_in_red(shown: Page, strange):
    strange.hub.began -= 500
    strange.node.show(now=500.0, blockers=(Blocker("window", 2, "beta", 40, 0.0),))
    shown.wait_for("state", "stands still")
    assert shown.read(READ_TONE) == "bad"
    assert shown.text("state-reason").endswith(" s: step 40 of beta has not come.")


def test_a_run_that_unlearns_says_so_in_red_and_each_figure_says_of_which_step_it_is(shown: Page, strange):
    assert shown.notes("figures")["Mean"] == ""
    strange.hub.measured(899, 1, 0.8765, 0.1)
    strange.hub.evaluated(880, {"accuracy": 0.512, "loss": 0.97}, {"rows": 512}, Rise(880, 0.97, Best(232, 0.0213)))
    shown.wait_for("state", "ready, but unlearns")
    assert shown.read(READ_TONE) == "bad"
    assert shown.sentences("wrong") == [
        "The loss of the evaluation at step 880 has risen to 0.97; its best was 0.021 at step 232."
    ]
    values, notes = shown.facts("figures"), shown.notes("figures")
    assert (values["Loss"], notes["Loss"]) == ("0.8765", "at step 899")
    assert (values["Accuracy"], notes["Accuracy"]) == ("51.2 %", "at step 880")
    strange.hub.evaluated(940, {"accuracy": 0.982, "loss": 0.03}, {"rows": 512})
    shown.wait_for("state", "ready")
    assert shown.read(READ_TONE) == "good"
    assert shown.sentences("wrong") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 1100, DESK])
def test_it_can_be_read_on_every_screen(strange, page: Page, theme: str, width: int):
    strange.hub.steps_per_second = lambda: 0.0
    strange.hub.measured(29_999, 1, 3.2e11, 0.1)
    strange.hub.evaluated(30_000, {"perplexity": 7.5e307}, {"rows": 512}, Rise(30_000, 710.0, Best(12_345, 0.0213)))
    page.open(strange.address, theme=theme, width=width)
    page.wait_for_fact("figures", "Time left", "stands still")
    page.screenshot(f"other-{theme}-{width}")
    assert page.read("return document.documentElement.scrollWidth") == width
    assert page.read(READ_CLIPPED) == []
    assert [text for text in page.read(READ_FAINT_TEXT) if text["contrast"] < text["least"]] == []


def test_all_that_is_announced_has_a_name(shown: Page):
    assert shown.unnamed_elements() == []
