#!/bin/sh
# Makes node/seedflood/wire/flood_pb2*.py* from flood.proto.   proto/generate.sh [output folder]
#
# The version is pinned because generated code must not be newer than the oldest runtime we support: grpcio-tools 1.72.1
# writes for protobuf >= 6.30 (and, by protobuf's cross-version promise, < 8). It cannot be installed beside protobuf 7, hence a virtual environment of its own. SEEDFLOOD_PROTOC_PYTHON names a Python that has it already.
set -eu
pinned=1.72.1
root=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$root/node}
if [ -n "${SEEDFLOOD_PROTOC_PYTHON:-}" ]; then
  python=$SEEDFLOOD_PROTOC_PYTHON
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  python3 -m venv "$scratch"
  "$scratch/bin/pip" install --quiet "grpcio-tools==$pinned"
  python=$scratch/bin/python
fi
found=$("$python" -c 'from importlib.metadata import version; print(version("grpcio-tools"))')
if [ "$found" != "$pinned" ]; then
  echo "grpcio-tools is $found but $pinned is pinned: unset SEEDFLOOD_PROTOC_PYTHON to let this script install it" >&2
  exit 1
fi
mkdir -p "$output"
"$python" -m grpc_tools.protoc --proto_path="$root/proto" --python_out="$output" --pyi_out="$output" \
  seedflood/wire/flood.proto
