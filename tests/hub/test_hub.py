"""Models and data sets of the Hugging Face hub, fetched by real processes from a server that speaks its protocol."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import datasets
import pytest
import pytest_asyncio
from hub_server import COMMIT, HubServer

from seedflood import embedded
from seedflood.embedded import grammar
from seedflood.errors import ExitCode

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

MODEL, DATA = "facebook/opt-125m", "stanfordnlp/sst2"
DATA_FILES = {"train": "data/train-00000-of-00001.parquet", "validation": "data/validation-00000-of-00001.parquet"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub")
    shutil.copytree(embedded.MODEL_FOLDER, root / "models" / MODEL)
    write_data(root / "datasets" / DATA)
    server = HubServer(root)
    await server.start()
    yield server
    await server.close()


def write_data(folder: Path) -> None:
    labels = datasets.ClassLabel(names=["negative", "positive"])
    for rows, file in zip(grammar.rows(3, (48, 16)), DATA_FILES.values(), strict=True):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_list(rows).cast_column("label", labels).to_parquet(folder / file)


async def run(hub: HubServer, home: Path, package: str, *words: str, **environment: str) -> tuple[int, str, str]:
    """The command of a package with the hub at hand: exit code, stdout, stderr."""
    of_hub = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"from {package} import main; main()", *words),
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **of_hub, **environment},
        cwd=Path(__file__).parents[2],
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def local(hub: HubServer, home: Path, model: str, **environment: str) -> tuple[int, str, str]:
    """A cluster of two daemons, which fetch model and data by themselves and at once."""
    words = f"local --nodes 2 --model {model} --task sst2 --steps 2 --train-examples 8 --json"
    return await run(hub, home, "seedflood.cli", *words.split(), **environment)


async def test_daemons_fetch_model_and_data_once_and_then_need_no_hub(hub, tmp_path):
    code, out, err = await local(hub, tmp_path, MODEL)
    assert (code, json.loads(out or "{}").get("digests_equal")) == (0, True), err
    assert f"/{MODEL}/resolve/{COMMIT}/model.safetensors" in hub.asked
    assert {f"/datasets/{DATA}/resolve/{COMMIT}/{file}" for file in DATA_FILES.values()} <= set(hub.asked)
    before = len(hub.asked)
    code, _, err = await local(hub, tmp_path, MODEL, HF_HUB_OFFLINE="1")
    assert (code, hub.asked[before:]) == (0, []), err


async def test_what_the_hub_does_not_have_is_one_sentence(hub, tmp_path):
    code, _, err = await local(hub, tmp_path, "nobody/nothing")
    (line,) = [one for one in err.splitlines() if one.startswith("seedflood: ")]
    assert code == ExitCode.CONFIG
    assert 'Model "nobody/nothing" is neither' in line
    assert "(the hub has no such model, or it is private)" in line


async def test_a_study_fetches_model_and_data_and_measures_every_method(hub, tmp_path):
    words = f"--plan smoke --model {MODEL} --task sst2 --methods seedflood,dsgd-lora --jobs 2 --json --out"
    code, out, err = await run(hub, tmp_path / "home", "study.__main__", *words.split(), str(tmp_path / "study"))
    assert code == 0, err
    assert json.loads(out)["cells"] == 4
    results = [json.loads(line) for line in (tmp_path / "study" / "results.jsonl").read_text().splitlines()]
    assert {(one["cell"]["model"], one["cell"]["task"]) for one in results} == {(MODEL, "sst2")}
    assert f"/{MODEL}/resolve/{COMMIT}/model.safetensors" in hub.asked
    assert {f"/datasets/{DATA}/resolve/{COMMIT}/{file}" for file in DATA_FILES.values()} <= set(hub.asked)
