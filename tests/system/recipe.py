"""What the documents say about several hosts, files and commands, so that a test can follow it literally."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVERYWHERE = "every host"
STEPS = "SEEDFLOOD__RUN__STEPS"
"""Of the environment, which is stronger than files: so a test takes fewer steps by the commands that are written."""

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\*\*(?P<word>\w+)\*\*", re.MULTILINE)


def settings_files() -> dict[str, str]:
    """peers.toml by name of the host, put together as the text says."""
    parts = {}
    for block in BLOCK.finditer(_section()):
        if block["language"] == "toml":
            first, _, rest = block["text"].partition("\n")
            parts[first.removeprefix("# peers.toml on ")] = rest
    common = parts.pop(EVERYWHERE)
    return {host: f"{common}\n{part}" for host, part in parts.items()}


def command(step: str) -> str:
    """The command below the paragraph that begins with this bold word."""
    section = _section()
    start = next(match.end() for match in STEP.finditer(section) if match["word"] == step)
    block = BLOCK.search(section, start)
    assert block is not None
    assert block["language"] == "sh"
    assert STEP.search(section, start, block.start()) is None, f"no command belongs to {step}"
    return block["text"].strip()


def script(subtitle: str) -> list[str]:
    """The commands below a heading of the page about hosts, one by one; continued lines are joined."""
    section = _section()
    block = BLOCK.search(section, section.index(f"## {subtitle}"))
    assert block is not None
    return block["text"].replace("\\\n", " ").strip().splitlines()


def closed_run() -> list[str]:
    """The README's commands that make a closed run and start a host, and those of the page about hosts that invite one
    more, and let it join."""
    return [
        *_commands((ROOT / "README.md").read_text(), "## Several hosts", 2),
        *_commands(_section(), "## A host that joins later", 2),
    ]


def with_a_relay() -> list[str]:
    """The commands that make a run of two laptops and a server, start the server, and a laptop."""
    return _commands(_section(), "## Two laptops", 3)


def as_a_jobset() -> list[str]:
    """The commands that start a run on Kubernetes, and those that invite a host elsewhere."""
    return _commands(_section(), "## As a JobSet", 2)


def on_a_cloud() -> list[str]:
    """The commands that start a run by SkyPilot, and those that invite a host elsewhere."""
    return _commands(_section(), "## On machines of a cloud", 2)


def _commands(text: str, heading: str, count: int) -> list[str]:
    """The blocks of commands of a page below a heading."""
    begin = text.index(heading)
    blocks = list(BLOCK.finditer(text, begin, re.compile("^##", re.MULTILINE).search(text, begin + 3).start()))  # type: ignore[union-attr]
    assert [block["language"] for block in blocks] == ["sh"] * count
    return [block["text"].strip() for block in blocks]


def _section() -> str:
    return (ROOT / "docs" / "how-to" / "hosts.md").read_text()
