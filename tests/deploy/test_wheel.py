"""A wheel is all that a host needs: it is built here, and used in an empty folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SCRIPT = """
import sys
import torch
from transformers import AutoModelForCausalLM
import seedflood
from seedflood.embedded import MODEL_FOLDER

assert seedflood.__file__.startswith(sys.argv[1]), seedflood.__file__
model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER)
settings = {
    "run": {"clients": 1, "steps": 2, "model": "embedded", "objective": {"task": "own"}},
    "node": {"listen": "127.0.0.1:0", "http": "127.0.0.1:0"},
}
with seedflood.join(model, "peers.toml", settings) as swarm:
    for _ in range(swarm.steps):
        tokens = torch.arange(8).unsqueeze(0)
        model(input_ids=tokens, labels=tokens).loss.backward()
        swarm.optimizer().step()
print("digest", swarm.digest)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"
    shutil.copytree(REPOSITORY / "node", source / "node", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home), str(source), folder=home)
    (wheel,) = home.glob("seedflood-*.whl")
    run(*pip, "install", "--no-deps", "--no-compile", "--target", str(home / "site"), str(wheel), folder=home)
    return home / "site"


def run(*command: str, folder: Path, **environment: str) -> str:
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_a_script_takes_part(site: Path, tmp_path: Path):
    (tmp_path / "peers.toml").touch()
    said = run(sys.executable, "-c", SCRIPT, str(site), folder=tmp_path, PYTHONPATH=str(site))
    assert said.startswith("digest ")


def test_daemons_train_what_is_embedded(site: Path, tmp_path: Path):
    command = (sys.executable, str(site / "bin" / "seedflood"), "local", "--nodes", "2", "--steps", "3")
    said = run(*command, folder=tmp_path, PYTHONPATH=str(site))
    assert "digest" in said
