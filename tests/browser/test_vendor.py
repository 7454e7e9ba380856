"""The libraries of the page are those that were reviewed."""

import hashlib
from pathlib import Path

import seedflood

VENDOR = Path(seedflood.__file__).parent / "operations" / "static" / "vendor"


def test_vendored_files_are_as_pinned_and_each_library_has_its_licence():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    pinned = {name: digest for digest, name in (line.split() for line in lines)}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert found == pinned
    assert {name.split("/")[0] for name in found} == {n.split("/")[0] for n in found if n.endswith("/LICENSE")}
