"""What others say does nothing to a terminal."""

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seedflood.cli import options, watching
from seedflood.cluster.display import understood
from seedflood.terminal import Screen, visible

ATTACKS = [
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJm\x1b\\",
    "\x1b[2J",
    "\x9b2J",
    "\x90q\x9c",
    "a\rb",
    "\x08\x08",
    "\x00",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\ud800",
    "\x7f",
]


def is_harmless(told):
    return not any(visible(one) != one for one in told)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_terminal_would_obey_is_spelled(attack):
    told = visible(f"before {attack} after")
    assert is_harmless(told)
    assert told.startswith("before ")
    assert told.endswith(" after")


@given(st.text())
def test_whatever_is_said_can_be_shown(text):
    told = visible(text)
    assert visible(told) == told
    assert told.encode().decode() == told


def test_what_can_be_read_stays_as_it_is():
    for text in ("two\nlines\r\n\tand a tab", "grüße — 日本\u3000語", "👩\u200d🔬", "שלום", "\\x1b"):
        assert visible(text) == text


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_screen_shows_it_harmlessly_wherever_it_stands(attack):
    told = io.StringIO()
    screen = Screen(file=told, width=60, color_system=None, force_terminal=False)
    table = Table(title=Text(attack))
    table.add_column(Text(attack))
    table.add_row(Text(attack))
    screen.print(attack, Text(attack), table, markup=False)
    assert is_harmless(told.getvalue())


def test_a_screen_itself_may_move_the_cursor():
    told = io.StringIO()
    screen = Screen(file=told, width=60, force_terminal=True, color_system=None, legacy_windows=False)
    with Live(Text("\x1b[2J first"), console=screen, auto_refresh=False) as live:
        live.update(Text("second"), refresh=True)
    assert "\x1b[?25l" in told.getvalue()
    assert "\x1b[2J" not in told.getvalue()
    assert "\\x1b[2J first" in told.getvalue()


@pytest.mark.parametrize("attack", ATTACKS)
def test_rows_events_and_words_of_models_are_shown_harmlessly(attack, capsys):
    facts = {
        **dict.fromkeys(("copies", "unused", "cut", "endless"), 0),
        **dict.fromkeys(("rows", "rows_found", "looked_at", "validation_rows", "tokens_per_row"), 8),
        "unknown": 0.0,
        "held_out": True,
        "task": "lm",
        "columns": [attack],
        "sample": attack,
        "remarks": [attack],
    }
    assert is_harmless(understood(facts))
    event = {"time": attack, "event": attack, "level": "info", "reason": attack}
    assert is_harmless(watching.show_event(event).plain)
    options.say(attack, nl=False)
    assert is_harmless(capsys.readouterr().out)


LOGGING = """
import logging, sys
from seedflood.host.logs import configure_logging
configure_logging("alpha")
attack = "\\x1b]0;title\\x07\\x9b2J\\n2027 forged line"
log = logging.getLogger("seedflood")
log.warning("refused %s", attack)
log.warning("refused", extra={"reason": attack, "x": [attack]})
log.warning("\\x1b]0;t\\x07", extra={"peer": "\\x1b]0;t\\x07"})
try:
    raise ValueError(attack)
except ValueError:
    log.exception("failed")
"""


def said_to_terminal(program):
    reader, terminal = pty.openpty()
    subprocess.run([sys.executable, "-c", program], stderr=terminal, check=True, timeout=60)
    os.set_blocking(reader, False)
    told = os.read(reader, 1 << 16).decode()
    os.close(terminal)
    os.close(reader)
    return told


def test_a_log_on_a_terminal_obeys_nobody_and_keeps_a_line_one_line():
    told = said_to_terminal(LOGGING)
    assert "\x1b]" not in told
    assert "\x07" not in told
    assert "\x9b" not in told
    before_traceback = told[: told.index("failed")]
    assert not any(line.startswith("2027") for line in before_traceback.splitlines())


def test_a_log_for_machines_is_one_line_of_ascii_for_each_fact():
    ran = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, check=True, timeout=60)
    lines = ran.stderr.splitlines()
    assert len(lines) == 4
    assert all(json.loads(line) for line in lines)
    assert is_harmless(ran.stderr.decode("ascii"))
