"""What the documents show does what they say, and what they name is there."""

import contextlib
import io
import re
import tokenize
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tools import draw_four_hosts

ROOT = Path(__file__).parents[1]
DRIVING = "docs/explanation/driving-the-core.md"
TO_DO = ("continuing", "data", "gasloc", "hosts", "library", "operating", "reward", "simulation")
GUIDES = ("tutorial", "reference/models", "explanation/choosing", *(f"how-to/{name}" for name in TO_DO))
PLAIN = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", DRIVING)
PLAIN += tuple(f"docs/{name}.md" for name in GUIDES)
EXPLANATIONS = tuple(f"docs/explanation/{name}.md" for name in ("consensus", "gossip", "learning", "links"))
PROSE = ("README.md", *PLAIN, *EXPLANATIONS)
PAGES = (*PROSE, "benchmarks/RESULTS.md")

LINES_MAX = {"README.md": 150, "ARCHITECTURE.md": 400, "CHANGELOG.md": 100, "benchmarks/RESULTS.md": 150}
COLUMNS_MAX = 110
SENTENCE_WORDS_MAX = 30
HARD_WORDS = ("as they like", "as you like", "heard of", "hears of", "hence", "is told", "of late", "of unlike")
HARD_WORDS += ("tells of", "thereby", "thereof", "thus", "who speaks", "whoever", "whom")
"""What makes a reader of English as a second language begin a sentence again."""

GLOSSARY_MAX = 25
"""What a newcomer reads in an hour, and keeps in mind."""

ROOMS = ("", "node/seedflood", "node/seedflood/protocol", "node/seedflood/training/seedflood")
"""Folders that a page may leave out in front of a path."""

FOLDERS_OF_TESTS = sorted({path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")})
MADE_BY_A_NODE = {"peers.toml", "result.json", "http.json", "snapshots/", "findings/", "run/operator.key"}
"""Files of an operator, or of a node that runs."""

ELSEWHERE = ("facebook/", "rewards/", "swarm/", "train/")
"""Models of the hub and figures in trackers, whose names look like paths."""

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
"""A word within a name: `is_amnesic`, `DivergenceDetector`."""


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
    paths = {one for one in paths if one not in MADE_BY_A_NODE and not one.startswith(ELSEWHERE)}
    return sorted(path for path in paths if not is_there(path))


def missing_names(text: str) -> list[str]:
    """Classes, constants and their attributes that stand nowhere in the code."""
    names = {one for one in quoted(text) if NAME.fullmatch(one) and re.search(r"[A-Z]", one) and one not in INVENTED}
    return sorted(name for name in names if not set(name.split(".")) <= WORDS)


def headings(text: str) -> set[str]:
    """Of a page, as links name them."""
    found = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in found}


def sentences(text: str) -> list[str]:
    """Of the prose of a page: of its paragraphs and items of lists, without headings, tables and blocks."""
    parts = re.split(r"\n{2,}|\n(?= *(?:- |\d+\. ))", BLOCK.sub("", text))
    prose = [re.sub(r"\]\([^)]*\)", "]", part) for part in parts if not re.match(r"[#|<!>]", part.strip())]
    return [one for part in prose for one in re.split(r"(?<=[.?!:])\s+", " ".join(part.split())) if one]


def wide_lines(text: str) -> list[str]:
    """Of the prose of a page: rows of tables, blocks, and what has no space to break it at may be wider."""
    lines = BLOCK.sub("", text).splitlines()
    return [line for line in lines if len(line) > COLUMNS_MAX and line[0] != "|" and " " in line.strip()]


def hard_words(text: str) -> list[str]:
    """Those that a page uses, also in its tables."""
    words = " ".join(BLOCK.sub("", text).lower().split())
    return [one for one in HARD_WORDS if re.search(rf"\b{one}\b", words)]


def table_of(text: str, heading: str) -> dict[str, list[str]]:
    """The cells of the first table below a heading, by the first cell of each row."""
    below = text[text.index(heading) :]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return {first: cells for first, *cells in rows}


def measured(task: str) -> dict[str, tuple[float, float]]:
    """(accuracy, bytes of a step) of each method on a real model, as the benchmark has written them."""
    rows = table_of((ROOT / "docs/reference/real.md").read_text(), f"## {task}")
    figures = {name.partition(",")[0]: cells for name, cells in rows.items() if name not in ("", "---")}
    return {name: (_first(cells[0]), _first(cells[2])) for name, cells in figures.items()}


def _first(cell: str) -> float:
    """A median; the least and the most stand behind it."""
    return float(cell.partition(" ")[0].replace(",", ""))


def spelled(count: float) -> str:
    """Bytes, as a table for people has them."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.0f} {unit}"
    return f"{count:.0f}"


def glossary(text: str) -> dict[str, list[str]]:
    """The words that a page explains: the first column of its table, and those in italics beside each."""
    _, _, *lines = text.partition("\n## Words\n")[2].partition("\n## ")[0].partition("\n|")[2].splitlines()
    rows = [line.split("|") for line in lines if line.startswith("|")]
    return {row[1].strip(): re.findall(r"\*(\w+)\*", row[2]) for row in rows}


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


def test_every_page_is_of_one_kind_and_in_the_site():
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert {page.split("/")[1] for page in pages} == {"tutorial.md", "how-to", "reference", "explanation"}
    in_site = re.findall(r": (\S+\.md)$", (ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE)
    assert [page for page in pages if page not in in_site] == []


@pytest.mark.parametrize("page", LINES_MAX)
def test_a_page_is_short_enough_to_be_read(page):
    assert len((ROOT / page).read_text().splitlines()) <= LINES_MAX[page]


@pytest.mark.parametrize("page", PROSE)
def test_no_line_of_prose_is_too_wide(page):
    assert wide_lines((ROOT / page).read_text()) == []


def test_no_line_of_the_readme_is_too_wide():
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if len(line) > COLUMNS_MAX] == []


@pytest.mark.parametrize("page", PROSE)
def test_sentences_of_a_page_are_short(page):
    found = sentences((ROOT / page).read_text())
    assert len(found) > 10
    assert [one for one in found if len(one.split()) > SENTENCE_WORDS_MAX] == []


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_uses_no_hard_words(page):
    assert hard_words((ROOT / page).read_text()) == []


METHODS = {"**seedflood**": "rank-16", "LoRA": "lora", "AdamW": "adamw", "DiLoCo": "diloco"}


def test_the_first_table_of_the_readme_has_the_figures_that_were_measured():
    readme = (ROOT / "README.md").read_text()
    head, _, *rows = table_of(readme, "# seedflood").items()
    assert head[1][:3] == ["sent per step", "SST-2", "TREC"]
    assert [name for name, _ in rows] == list(METHODS)
    tasks = [measured("SST-2"), measured("TREC")]
    for name, (sent, *accuracies) in rows:
        figures = [task[METHODS[name]] for task in tasks]
        assert {spelled(count) for _, count in figures} == {sent}
        assert accuracies[:2] == [f"{accuracy:.3f}" for accuracy, _ in figures]
    before = " and ".join(f"{task['base'][0]:.3f}" for task in tasks)
    assert f"the base model has {before}." in " ".join(readme.split())


def test_what_a_liar_does_by_the_readme_was_measured():
    rows = table_of((ROOT / "benchmarks/notes/2026-11.md").read_text(), "**Gemma 3 270M with liars**")
    honest, lied = (rows[name][-1].partition("/")[0] for name in ("honest, ours", "1 of 4 turned and largest, ours"))
    *_, said = table_of((ROOT / "README.md").read_text(), "# seedflood")["**seedflood**"]
    assert said == f"0{honest} → 0{lied}"


def test_the_picture_of_the_readme_is_the_one_that_is_drawn_and_says_what_the_page_says():
    readme = (ROOT / "README.md").read_text()
    for name, theme in draw_four_hosts.THEMES.items():
        assert (ROOT / f"docs/four-hosts-{name}.svg").read_text() == draw_four_hosts.draw(theme)
        assert f'"docs/four-hosts-{name}.svg"' in readme
    assert f"  {draw_four_hosts.DIGEST}  " in readme
    sent, *_ = table_of(readme, "# seedflood")["**seedflood**"]
    assert f"{sent} a step of Gemma 3 270M" == draw_four_hosts.PER_STEP


def test_the_glossary_is_short_and_names_in_the_code_come_from_it():
    words = glossary((ROOT / "ARCHITECTURE.md").read_text())
    assert 0 < len(words) <= GLOSSARY_MAX
    explained = [*words, *(word for others in words.values() for word in others)]
    assert len(set(explained)) == len(explained)
    assert unused(explained) == []


def test_these_checks_can_fail():
    paths = "`protocol/sworm/` `window.py` `protocol/swarm/graph` `test_gone.py` `test_cli.py` `Node.collect`"
    assert missing_paths(paths) == ["protocol/sworm/", "test_gone.py", "window.py"]
    assert missing_names("`Node.no_such_method` `Node.collect` `NO_SUCH_LIMIT`") == [
        "NO_SUCH_LIMIT",
        "Node.no_such_method",
    ]
    table = "| word | meaning |\n|---|---|\n| epoch | *steps* of a *round* |\n| gist | - |\n"
    assert glossary(f"\n## Words\n\n{table}\n## Next\n| no | - |\n") == {"epoch": ["steps", "round"], "gist": []}
    assert headings("# A page, and more\n```sh\n# no heading\n```\n") == {"a-page-and-more"}
    assert unused(["epoch", "gist"]) == ["gist"]
    assert names_of('"""essay"""\nis_ready = DigestWatch()  # remark\n') == {"is", "ready", "digest", "watch"}
    assert run_blocks([("python", "print(1)"), ("text", "2\n")]) == [("1\n", "2\n")]
    page = "# No\n\nOne two. Three\n[four](x.md#y): five\n\n- no no\n\n| a | 1 |\n|---|---|\n| b | 3 (4) | 5,000 |\n"
    assert sentences(page) == ["One two.", "Three [four]:", "five", "- no no"]
    wide = "a " * 56
    assert wide_lines(f"{wide}\n| {wide}|\n{'a' * 111}\n```sh\n{wide}\n```\n- short\n") == [wide]
    assert hard_words("Thus\nit is whomever.\n```sh\nwhom\n```\n| of\nlate |\n") == ["of late", "thus"]
    assert table_of(page, "# No")["b"] == ["3 (4)", "5,000"]
    assert [_first(cell) for cell in ("3 (4)", "5,034")] == [3, 5034]
    assert [spelled(count) for count in (0, 4839, 268_098_176)] == ["0", "5 kB", "268 MB"]


def test_the_table_of_choices_is_the_one_that_the_study_wrote():
    heading = "## Which one should I use?\n\n"
    table = (ROOT / "docs/reference/study.md").read_text().partition(heading)[2].partition("\n\n")[0]
    _, _, *lines = table.splitlines()
    assert len({line.split(" | ")[0] for line in lines}) == 5
    assert table in (ROOT / "docs/explanation/choosing.md").read_text()
