"""The generated code is what the pinned generator makes of flood.proto, and any generator agrees on what it means."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from seedflood.wire import flood_pb2

ROOT = Path(__file__).parents[2]
GENERATE = ROOT / "proto" / "generate.sh"
PINNED = re.search(r"^pinned=(\S+)$", GENERATE.read_text(), re.MULTILINE)[1]


def installed() -> str | None:
    try:
        return version("grpcio-tools")
    except PackageNotFoundError:
        return None


@pytest.mark.skipif(installed() is None, reason="grpcio-tools is not installed")
def test_the_committed_code_describes_the_committed_proto(tmp_path: Path) -> None:
    output = tmp_path / "flood.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'proto'}"]
    subprocess.run([*command, f"--descriptor_set_out={output}", "seedflood/wire/flood.proto"], check=True)
    (described,) = FileDescriptorSet.FromString(output.read_bytes()).file
    for message in described.message_type:
        for field in message.field:
            field.ClearField("json_name")  # protoc tells it, the generated code leaves it out
    assert described.SerializeToString() == flood_pb2.DESCRIPTOR.serialized_pb


def test_the_pinned_generator_makes_the_committed_code(tmp_path: Path) -> None:
    python = os.environ.get("SEEDFLOOD_PROTOC_PYTHON") or (sys.executable if installed() == PINNED else None)
    if python is None:
        pytest.skip(f"grpcio-tools {PINNED} is not installed; SEEDFLOOD_PROTOC_PYTHON may name a Python that has it")
    subprocess.run([GENERATE, tmp_path], check=True, env=os.environ | {"SEEDFLOOD_PROTOC_PYTHON": python})
    made = {path.name: path.read_bytes() for path in (tmp_path / "seedflood" / "wire").iterdir()}
    committed = ROOT / "node" / "seedflood" / "wire"
    assert sorted(made) == ["flood_pb2.py", "flood_pb2.pyi"]
    for name, content in made.items():
        assert content == (committed / name).read_bytes(), f"{name}: run proto/generate.sh"
