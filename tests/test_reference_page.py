"""docs/reference.md is what the code says."""

import re

from seedflood.config import RunSettings
from tools import write_reference


def test_the_reference_is_the_one_that_is_written_from_the_code():
    assert write_reference.PAGE.read_text() == write_reference.write(), "run python tools/write_reference.py"


def test_the_reference_has_commands_settings_and_events():
    page = write_reference.write()
    rows = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    assert {"`--learning-rate, --lr`", "`window`", "replica agrees", "window closed"} <= {*rows}
    assert all(
        f"| `{key}` |" in page for key in RunSettings.model_fields if key not in ("objective", "seedflood", "gasloc")
    )
    assert "### seedflood roster invite" in page
