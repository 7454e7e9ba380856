"""Builds the pages of the repository as a site, without a network: `make site` writes build/site.

Fails if a link between pages leads nowhere. Pages keep their places, so that the same links hold here and there.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "site-pages"
CONFIG = ROOT / "docs" / "mkdocs.yml"

FOLDERS = ("docs", "deploy", "docker", "benchmarks", "examples")
KINDS = {".md", ".svg", ".png", ".toml", ".py", ".ipynb", ".yaml", ".service", ".conf", ".sbatch"}
"""Of files that pages show, or that they link to."""


def gather() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    folders = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*ROOT.glob("*.md"), *folders]:
        if path.suffix in KINDS and path.is_file():
            target = PAGES / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


if __name__ == "__main__":
    gather()
    sys.exit(subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG)]).returncode)
