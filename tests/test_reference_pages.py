"""Commands, settings and events of docs/reference are those of the code."""

import re

import pytest

from seedflood.config import RunSettings
from tools import write_reference

PAGES = write_reference.write()
TABLES = ("objective", "seedflood", "gasloc")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_the_one_that_is_written_from_the_code(name):
    page = (write_reference.FOLDER / name).read_text()
    assert page == PAGES[name], "run python tools/write_reference.py"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("commands.md", {"`--learning-rate, --lr`", "`--folder`"}),
        ("settings.md", {"`window`", *(f"`{key}`" for key in RunSettings.model_fields if key not in TABLES)}),
        ("events.md", {"replica agrees", "window closed"}),
    ],
)
def test_a_page_has_a_row_for_each(name, rows):
    assert rows <= {*re.findall(r"^\| (.*?) \|", PAGES[name], re.MULTILINE)}


def test_commands_of_groups_are_there():
    assert "## seedflood roster invite" in PAGES["commands.md"]
