"""Feeds one of the targets of tests/fuzz with what atheris (libFuzzer) makes up, guided by the branches that it takes.

`make fuzz` runs all of them, one after the other. An input that breaks a target is written to the folder in which it is
started, and belongs into tests/fuzz/corpus/TARGET together with the mended code.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))

with atheris.instrument_imports(include=["seedflood"]):
    from targets import CORPORA, TARGETS


def main() -> None:
    """`fuzz.py TARGET [OPTION ...]`, with the options of libFuzzer. What only reaches new branches is forgotten in the
    end: the kept corpora stay small."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"name a target: {', '.join(TARGETS)}")
    target = sys.argv.pop(1)
    seeds = ",".join(str(path) for path in sorted((CORPORA / target).iterdir()))
    atheris.Setup([*sys.argv, f"-seed_inputs={seeds}"], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
