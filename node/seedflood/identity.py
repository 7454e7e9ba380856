"""Who we are: an Ed25519 key in a file that only its owner can read.

libsodium signs and verifies. It is twice as fast as OpenSSL here, and a relay spends most of its time on verification.
Libraries disagree about signatures that no honest signer makes, for example with keys of small order. Nodes that
disagree about a signature would hold different sets of updates for ever. So all nodes must use the same library, and
only this module calls it.
"""

import contextlib
import grp
import os
import pwd
import tempfile
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from nacl.bindings import (
    crypto_sign,
    crypto_sign_BYTES,
    crypto_sign_open,
    crypto_sign_PUBLICKEYBYTES,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from seedflood import durable
from seedflood.errors import ConfigError
from seedflood.protocol.origin import OriginId, fingerprint, origin_id

KEY_FILE_BYTES_MAX = 16_384
FRESH_SUFFIX = ".fresh"
"""Suffix of the mark: a file beside a key that was made here and never used. It holds the fingerprint of that key, and
when its file was changed last (ctime), which no copy keeps. So a mark counts for nothing beside a copy: the key may
have been used where it was copied to before."""

OTHERS = 0o077
"""Bits of a mode that let others than the owner use a file."""

NO_MODES = (
    "the key {path} could be read by every user here, for its file system keeps no modes: set [node] state to a folder "
    "on one that does (in WSL: below /home), or mount this one for this user alone (exFAT, SMB: options uid= and "
    "dmask=077,fmask=077 or dir_mode=0700,file_mode=0600)."
)


class Identity:
    """A key pair and what follows from it."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.public_key, self._secret_key = crypto_sign_seed_keypair(key.private_bytes_raw())
        self.origin: OriginId = origin_id(self.public_key)
        self._mark: Path | None = None

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path | str) -> Self:
        """Reads the key (PEM, PKCS#8), or makes one with mode 0600. Raises ConfigError."""
        path = Path(path)
        try:
            if not path.exists():
                write_key(path)
            identity = cls(_load(path))
            identity._find_mark(path)
            return identity
        except OSError as error:
            raise ConfigError(
                f"cannot read or create the key {path}: {error.strerror}; check the permissions of [node] state"
            ) from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a key that must be there, such as the operator's. Raises ConfigError."""
        try:
            return cls(_load(path))
        except FileNotFoundError:
            raise ConfigError(f"the key {path} does not exist; name the operator's with --key.") from None
        except OSError as error:
            raise ConfigError(f"the key {path} cannot be read: {error.strerror}.") from None

    @property
    def is_fresh(self) -> bool:
        """Was the key made here and never used to publish anything? Then no journal of it can have been lost."""
        return self._mark is not None

    def use(self) -> None:
        """Marks the key as used, durably. Call this before anything is published. Raises ConfigError."""
        if self._mark is None:
            return
        try:
            self._mark.unlink(missing_ok=True)
            durable.sync_folder(self._mark.parent)
        except OSError as error:
            raise ConfigError(
                f"cannot remove {self._mark}: {error.strerror}; check the permissions of [node] state"
            ) from None
        self._mark = None

    def _find_mark(self, path: Path) -> None:
        mark = _mark_of(path)
        if mark.exists() and mark.read_bytes() == self._mark_text(path):
            self._mark = mark

    def _mark_text(self, path: Path) -> bytes:
        return f"{self.fingerprint} {path.stat().st_ctime_ns}".encode()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.origin)

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        return crypto_sign(message, self._secret_key)[:crypto_sign_BYTES]


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Did this key sign the message? Never raises, whatever the bytes."""
    if len(public_key) != crypto_sign_PUBLICKEYBYTES or len(signature) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, public_key)
    except CryptoError:
        return False
    return True


def _mark_of(path: Path) -> Path:
    return path.with_name(path.name + FRESH_SUFFIX)


def write_key(path: Path, secret: bytes | None = None) -> None:
    """Makes a key file atomically, and marks it as never used. If another process was faster, its key stays. secret: 32
    bytes from which the key follows (default: drawn by the operating system). Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate() if secret is None else Ed25519PrivateKey.from_private_bytes(secret)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with contextlib.suppress(FileExistsError):
        with durable.draft(path, is_contested=True) as draft:
            if draft.stat().st_mode & OTHERS:
                raise ConfigError(NO_MODES.format(path=path))
            draft.write_bytes(pem)
        durable.write(_mark_of(path), Identity(key)._mark_text(path))


def _check_readers(path: Path, status: os.stat_result) -> None:
    """Raises ConfigError if another user may read the key."""
    mode = status.st_mode & 0o777
    is_ours = not mode & 0o007 and (not mode & 0o070 or _is_ours_alone(status.st_gid))
    if is_ours:
        return
    if not _keeps_modes(path.parent):
        raise ConfigError(NO_MODES.format(path=path))
    remedy = f"run: chmod 600 {path}"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        remedy = "give it so where it is mounted from (a Secret of Kubernetes: defaultMode: 0400)"
    raise ConfigError(f"the key {path} can be read by others (mode {mode:04o}); {remedy}")


def _is_ours_alone(group: int) -> bool:
    """Is nobody else in this group of ours? Supervisors let a group of the process read what they mount (Kubernetes:
    fsGroup)."""
    if group not in {os.getegid(), *os.getgroups()}:
        return False
    users = pwd.getpwall()
    inside = {user.pw_name for user in users if user.pw_gid == group}
    with contextlib.suppress(KeyError):  # a group without a name
        inside |= set(grp.getgrgid(group).gr_mem)
    return inside <= {user.pw_name for user in users if user.pw_uid in (0, os.geteuid())}


def _keeps_modes(folder: Path) -> bool:
    """False if a file there is open to others though it was not made so. True also if that cannot be tried."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as tried:  # mode 0600
            return not os.stat(tried.name).st_mode & OTHERS
    except OSError:
        return True


def _load(path: Path) -> Ed25519PrivateKey:
    with path.open("rb") as file:
        _check_readers(path, os.fstat(file.fileno()))
        pem = file.read(KEY_FILE_BYTES_MAX)
    try:
        key = load_pem_private_key(pem, password=None)
    except Exception:  # also of cryptography's own tree, e.g. UnsupportedAlgorithm
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"{path} holds no Ed25519 private key (PEM, PKCS#8, no password); put back its copy, or move it away and a "
            "new one is made: the node is then a new origin"
        )
    return key
