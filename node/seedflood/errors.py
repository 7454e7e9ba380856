"""Every error of the project, by whose fault it is.

The exit codes are those of sysexits(3), so that a supervisor can distinguish "restart me" from "repair me first".
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the process. `deploy/` says to supervisors after which of them they must not restart it."""

    OK = 0
    USAGE = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    DISK = 74
    TRY_AGAIN = 75
    RUN_MISMATCH = 76
    REFUSED = 77
    CONFIG = 78


class SeedfloodError(Exception):
    """A fault that one sentence explains to an operator: what is wrong and what to do."""

    exit_code = ExitCode.INTERNAL


class ConfigError(SeedfloodError):
    """The operator's fault: a setting that cannot be used."""

    exit_code = ExitCode.CONFIG


class UsageError(ConfigError):
    """The operator's fault: an argument of a command that cannot be used."""

    exit_code = ExitCode.USAGE


class ModelError(ConfigError):
    """The base model cannot be found, read or trained."""


class DataError(ConfigError):
    """The rows of the task cannot be found or used."""


class BindError(SeedfloodError):
    """The listening address is in use or not ours."""

    exit_code = ExitCode.UNAVAILABLE


class JournalError(SeedfloodError):
    """The disk's fault: the journal cannot be opened, read or written."""

    exit_code = ExitCode.DISK


class DiskFullError(JournalError):
    """There is no space left. Nothing was written; the same write can be tried again once there is space, and until
    then the node does not publish."""


class ExhaustedError(SeedfloodError):
    """The process has no more descriptors, or no more threads: no fault of the disk. Another try has them again."""

    exit_code = ExitCode.TRY_AGAIN


class InUseError(SeedfloodError):
    """Another process uses the state folder. It may be about to end, so it is right to try again."""

    exit_code = ExitCode.TRY_AGAIN


class RankError(SeedfloodError):
    """Another process of this host (`torchrun`) is gone. When all are started again, the host goes on from its
    journal."""

    exit_code = ExitCode.TRY_AGAIN

    def __init__(self) -> None:
        super().__init__(
            "another process of this host is gone: start all of them again, and the host goes on from its journal"
        )


class SupersededError(SeedfloodError):
    """Another process with the key of this node was started later, here or elsewhere."""

    exit_code = ExitCode.TRY_AGAIN

    def __init__(self, name: str, fingerprint: str) -> None:
        super().__init__(
            f"another process with the key of {name} ({fingerprint}) was started later than this one; stop one of the "
            "two, or give it a key of its own"
        )


class NotRunningError(SeedfloodError):
    """There is no node to ask, or it does not answer."""

    exit_code = ExitCode.TRY_AGAIN


class UnsettledError(SeedfloodError):
    """Hosts that can be reached do not hold the same yet of one that was removed."""

    exit_code = ExitCode.TRY_AGAIN


class RunMismatchError(SeedfloodError):
    """Every peer that answered belongs to another run.

    Attributes: public_key (the one that the peer has proven to have, if any).
    """

    exit_code = ExitCode.RUN_MISMATCH

    def __init__(self, message: str, *, public_key: bytes | None = None) -> None:
        super().__init__(message)
        self.public_key = public_key


class RemovedError(SeedfloodError):
    """The operator has removed this host from the run. No clock does."""

    exit_code = ExitCode.REFUSED


class PeerError(SeedfloodError):
    """Their fault: a peer sent what the protocol does not allow. Nothing of it was used.

    Attributes: reason, a short stable word for counters ("signature", "equivocation", ...).
    """

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def check(is_right: bool, sentence: str, reason: str = "limit") -> None:
    """Raises PeerError with this sentence, unless it is right."""
    if not is_right:
        raise PeerError(sentence, reason=reason)


class DivergenceError(SeedfloodError):
    """Our fault: replicas that should be equal differ."""
