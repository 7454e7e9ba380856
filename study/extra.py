"""What a study needs beside the packages of a daemon."""

from importlib.util import find_spec

from seedflood.errors import ConfigError

PACKAGES = ("matplotlib", "peft")


def check_extra() -> None:
    """Raises ConfigError if a package is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"A study needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed: run "
            '"make study", which installs what it needs, or .venv/bin/pip install -c constraints.txt -e ".[study]".'
        )
