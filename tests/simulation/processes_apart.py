"""What a script prints in Python processes that hash strings in different ways."""

import os
import subprocess
import sys


def said_under_any_hash(script: str) -> set[str]:
    """One text, if the script does not depend on the order of sets."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
