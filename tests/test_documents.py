"""What the documents show does what they say, and what they name is there."""

import contextlib
import io
import re
import tokenize
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DRIVING = "docs/driving-the-core.md"
GUIDES = ("choosing", "continuing", "data", "gasloc", "hosts", "models", "operating", "simulation")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", DRIVING)
PAGES += tuple(f"docs/{name}.md" for name in GUIDES)

LINES_MAX = {"README.md": 200, "ARCHITECTURE.md": 400}
GLOSSARY_MAX = 35
"""What a newcomer reads in an hour, and keeps in mind."""

ROOMS = ("", "node/seedflood", "node/seedflood/protocol", "node/seedflood/training/seedflood")
"""Folders that a page may leave out in front of a path."""

FOLDERS_OF_TESTS = sorted({path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")})
MADE_BY_A_NODE = {"peers.toml", "result.json", "http.json", "snapshots/", "findings/"}
"""Files of an operator, or of a node that runs."""

INVENTED = {"NAME", "HOST", "PORT"}
"""What a reader fills in."""

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w-]+/|[\w-]+\.(?:py|md|json|toml|proto|sh|mjs)")
NAME = re.compile(r"_?[A-Za-z]\w*(?:\._?\w+)*")

ROOTS = ("node", "simulation", "study", "tests")
SOURCES = [*(path for root in ROOTS for path in ROOT.glob(f"{root}/**/*.py")), *ROOT.glob("proto/**/*.proto")]
SOURCES += [*ROOT.glob("deploy/**/*.service"), ROOT / "docker" / "Dockerfile"]
WORDS = {word for path in SOURCES if path != Path(__file__) for word in re.findall(r"\w+", path.read_text())}
PART = re.compile(r"[A-Z]?[a-z]+")
"""A word within a name: `is_forgetful`, `DigestWatch`."""


def blocks_of(page: str) -> list[tuple[str, str]]:
    """(language, text) of all blocks of code, in their order."""
    return BLOCK.findall((ROOT / page).read_text())


def run_blocks(blocks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(what a block of Python prints, what the block below it says) of each, in one process, as a reader would."""
    names: dict[str, object] = {}
    said = []
    for (language, code), (_, expected) in pairwise(blocks):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, DRIVING, "exec"), names)
            said.append((printed.getvalue(), expected))
    return said


def quoted(text: str) -> list[str]:
    """Whatever stands between backticks outside of blocks."""
    return re.findall(r"`([^`]+)`", BLOCK.sub("", text))


def is_there(path: str) -> bool:
    """A file or a folder, perhaps without its ending, or a test by its bare name."""
    folders = (*ROOMS, *(FOLDERS_OF_TESTS if path.startswith("test_") else ()))
    return any((ROOT / room / (path + ending)).exists() for room in folders for ending in ("", ".py"))


def missing_paths(text: str) -> list[str]:
    paths = {one for one in quoted(text) if PATH.fullmatch(one) and not INVENTED & set(re.split(r"[/.]", one))}
    return sorted(path for path in paths if path not in MADE_BY_A_NODE and not is_there(path))


def missing_names(text: str) -> list[str]:
    """Classes, constants and their attributes that stand nowhere in the code."""
    names = {one for one in quoted(text) if NAME.fullmatch(one) and re.search(r"[A-Z]", one) and one not in INVENTED}
    return sorted(name for name in names if not set(name.split(".")) <= WORDS)


def headings(text: str) -> set[str]:
    """Of a page, as links name them."""
    found = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in found}


def glossary(text: str) -> list[str]:
    """The words that a page explains: the first column of its table."""
    _, _, *lines = text.partition("\n## Words\n")[2].partition("\n## ")[0].partition("\n|")[2].splitlines()
    return [line.split("|")[1].strip() for line in lines if line.startswith("|")]


def names_of(source: str) -> set[str]:
    """Single words of all names that a module defines or uses, without its comments and docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {part.lower() for one in tokens if one.type == tokenize.NAME for part in PART.findall(one.string)}


def unused(words: Sequence[str]) -> list[str]:
    """Words that no name in the package has."""
    names = {name for path in (ROOT / "node").rglob("*.py") for name in names_of(path.read_text())}
    return [word for word in words if not {word, word + "s"} & names]


def test_the_core_is_driven_as_its_page_shows():
    said = run_blocks(blocks_of(DRIVING))
    assert len(said) == 5
    for printed, expected in said:
        assert printed == expected


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    assert missing_paths((ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_code_on_a_page_are_there(page):
    assert missing_names((ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page):
    text, folder = (ROOT / page).read_text(), (ROOT / page).parent
    links = [link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link, _, _ in links if not (folder / link).exists()] == []
    to_headings = [(folder / link if link else ROOT / page, heading) for link, _, heading in links if heading]
    assert [heading for path, heading in to_headings if heading not in headings(path.read_text())] == []


@pytest.mark.parametrize("page", LINES_MAX)
def test_a_page_is_short_enough_to_be_read(page):
    assert len((ROOT / page).read_text().splitlines()) <= LINES_MAX[page]


def test_the_glossary_is_short_and_names_in_the_code_come_from_it():
    words = glossary((ROOT / "ARCHITECTURE.md").read_text())
    assert 0 < len(words) <= GLOSSARY_MAX
    assert len(set(words)) == len(words)
    assert unused(words) == []


def test_these_checks_can_fail():
    paths = "`protocol/sworm/` `window.py` `protocol/swarm/graph` `test_gone.py` `test_cli.py` `Node.collect`"
    assert missing_paths(paths) == ["protocol/sworm/", "test_gone.py", "window.py"]
    assert missing_names("`Node.no_such_method` `Node.collect` `NO_SUCH_LIMIT`") == [
        "NO_SUCH_LIMIT",
        "Node.no_such_method",
    ]
    table = "| word | meaning |\n|---|---|\n| epoch | steps |\n| gist | - |\n"
    assert glossary(f"\n## Words\n\n{table}\n## Next\n| no | - |\n") == ["epoch", "gist"]
    assert headings("# A page, and more\n```sh\n# no heading\n```\n") == {"a-page-and-more"}
    assert unused(["epoch", "gist"]) == ["gist"]
    assert names_of('"""essay"""\nis_ready = DigestWatch()  # remark\n') == {"is", "ready", "digest", "watch"}
    assert run_blocks([("python", "print(1)"), ("text", "2\n")]) == [("1\n", "2\n")]


def test_the_table_of_choices_is_the_one_that_the_study_wrote():
    heading = "## Which one should I use?\n\n"
    table = (ROOT / "docs/study.md").read_text().partition(heading)[2].partition("\n\n")[0]
    _, _, *lines = table.splitlines()
    assert len({line.split(" | ")[0] for line in lines}) == 5
    assert table in (ROOT / "docs/choosing.md").read_text()
