"""Ed25519 as RFC 8032 has it, and a key file that only its owner can read."""

import errno
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedflood.errors import ConfigError
from seedflood.identity import Identity, verify, write_key

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two shared cores

RFC_8032 = [  # section 7.1, tests 1 to 3: secret, public, message, signature
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)))
    assert identity.public_key.hex() == public
    assert identity.sign(bytes.fromhex(message)).hex() == signature
    assert verify(identity.public_key, bytes.fromhex(message), bytes.fromhex(signature))


def test_a_changed_message_signature_or_key_does_not_verify() -> None:
    identity = Identity.generate()
    signature = identity.sign(b"message")
    assert verify(identity.public_key, b"message", signature)
    assert not verify(identity.public_key, b"massage", signature)
    assert not verify(identity.public_key, b"message", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not verify(Identity.generate().public_key, b"message", signature)


@pytest.mark.parametrize(
    "key",
    [
        "01" + 31 * "00",
        "ec" + 30 * "ff" + "7f",
        32 * "00",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ],
)
def test_a_key_of_small_order_signs_nothing(key: str) -> None:
    """Its owner could claim that one signature is that of many messages. OpenSSL accepts the first of these."""
    neutral_point_and_zero = b"\1" + bytes(63)
    assert not any(verify(bytes.fromhex(key), bytes([message]), neutral_point_and_zero) for message in range(16))


@settings(RELAXED)
@given(st.binary(max_size=40), st.binary(max_size=8), st.binary(max_size=70))
def test_verify_never_raises(key: bytes, message: bytes, signature: bytes) -> None:
    assert not verify(key, message, signature)


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "node.key"
    before = os.umask(0)
    try:
        identity = Identity.load_or_create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(path.parent)) == ["node.key", "node.key.fresh"]
    again = Identity.load_or_create(path)
    assert again.public_key == identity.public_key
    assert again.origin == identity.origin
    assert again.fingerprint == f"{identity.origin:016x}"


def test_a_key_is_fresh_until_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    assert Identity.load_or_create(path).is_fresh
    identity = Identity.load_or_create(path)
    assert identity.is_fresh
    identity.use()
    identity.use()
    assert not identity.is_fresh
    assert os.listdir(tmp_path) == ["node.key"]
    assert not Identity.load_or_create(path).is_fresh


@pytest.mark.parametrize("keeps_times", [False, True])
def test_a_copy_of_a_fresh_key_is_not_fresh(tmp_path: Path, keeps_times: bool) -> None:
    """It may be the second copy, and the key was used at the first. No tool keeps what the mark has of the original."""
    there, here = tmp_path / "there", tmp_path / "here"
    Identity.load_or_create(there / "node.key")
    shutil.copytree(there, here, copy_function=shutil.copy2 if keeps_times else shutil.copy)
    assert sorted(os.listdir(here)) == ["node.key", "node.key.fresh"]
    assert not Identity.load_or_create(here / "node.key").is_fresh
    there.rename(tmp_path / "elsewhere")
    assert Identity.load_or_create(tmp_path / "elsewhere" / "node.key").is_fresh


def test_the_mark_of_one_key_says_nothing_about_another(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path / "node.key")
    other = tmp_path / "other.key"
    Identity.load_or_create(other).use()
    other.replace(tmp_path / "node.key")
    assert not Identity.load_or_create(tmp_path / "node.key").is_fresh


class Users:
    """Who is on this host, and in which groups: name, user id, primary group; members by group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, users: tuple, members: dict) -> None:
        made = [SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid) for name, uid, gid in users]
        monkeypatch.setattr("pwd.getpwall", lambda: made)
        monkeypatch.setattr("grp.getgrgid", lambda gid: SimpleNamespace(gr_mem=members[gid]))


OURS, GROUP = os.geteuid(), os.getegid()


def others(monkeypatch: pytest.MonkeyPatch) -> None:
    Users(monkeypatch, (("we", OURS, GROUP), ("other", OURS + 1, GROUP)), {GROUP: []})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    others(monkeypatch)
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        Identity.load_or_create(path)


@pytest.mark.parametrize("mode", [0o440, 0o640, 0o660, 0o460])
@pytest.mark.parametrize(
    ("users", "members"),
    [
        ((("we", OURS, GROUP),), {GROUP: ["we"]}),
        ((("we", OURS, 4711), ("root", 0, 0)), {}),
        ((), {}),
        ((("root", 0, GROUP),), {GROUP: ["root"]}),
    ],
    ids=["a group of our own", "a group without a name", "nobody has a name", "root, who reads anything"],
)
def test_a_key_that_a_supervisor_has_opened_to_a_group_of_ours_alone_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, users: tuple, members: dict
) -> None:
    """As Kubernetes does with fsGroup, and hosts where each user has a group."""
    path = tmp_path / "node.key"
    identity = Identity.load_or_create(path)
    path.chmod(mode)
    Users(monkeypatch, users, members)
    assert Identity.load_or_create(path).public_key == identity.public_key


@pytest.mark.parametrize(
    ("users", "members"),
    [
        ((("we", OURS, GROUP), ("other", OURS + 1, 100)), {GROUP: ["we", "other"]}),
        ((("we", OURS, GROUP), ("other", OURS + 1, GROUP)), {}),
        ((("we", OURS, GROUP),), {GROUP: ["somebody of a directory"]}),
    ],
    ids=["a member", "somebody's first group", "a member without an entry"],
)
def test_a_key_that_a_shared_group_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: tuple, members: dict
) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(0o640)
    Users(monkeypatch, users, members)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        Identity.load_or_create(path)


def test_a_key_of_a_group_that_is_not_ours_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(0o640)
    monkeypatch.setattr("os.getegid", lambda: GROUP + 1)
    monkeypatch.setattr("os.getgroups", list)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        Identity.load_or_create(path)


def test_a_key_on_a_volume_for_reading_is_to_be_mounted_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(0o444)
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(ConfigError, match=r"give it so where it is mounted from .*defaultMode: 0400"):
        Identity.load_or_create(path)


@pytest.fixture
def without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that takes any mode and keeps none, as drives of Windows in WSL, exFAT and SMB do."""
    stat_of, fstat_of = os.stat, os.fstat

    def open_to_all(status: os.stat_result) -> os.stat_result:
        return os.stat_result((status.st_mode | 0o777, *status[1:]))

    monkeypatch.setattr("os.stat", lambda *told, **named: open_to_all(stat_of(*told, **named)))
    monkeypatch.setattr("os.fstat", lambda file: open_to_all(fstat_of(file)))


def test_no_key_is_written_where_everybody_could_read_it(tmp_path: Path, without_modes: None) -> None:
    with pytest.raises(ConfigError, match=r"keeps no modes: set \[node\] state to a folder on one that does"):
        Identity.load_or_create(tmp_path / "node.key")
    assert os.listdir(tmp_path) == []


def test_a_key_on_a_file_system_without_modes_is_not_to_be_changed_by_chmod(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "node.key"
    Identity.load_or_create(path)
    path.chmod(0o777)
    request.getfixturevalue("without_modes")
    with pytest.raises(ConfigError, match="keeps no modes") as refused:
        Identity.load_or_create(path)
    assert "chmod" not in str(refused.value)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_key_needs_neither_hard_links_nor_folders_that_can_be_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.link", refuse)
    identity = Identity.load_or_create(tmp_path / "node.key")
    assert identity.is_fresh
    assert Identity.load_or_create(tmp_path / "node.key").public_key == identity.public_key
    write_key(tmp_path / "node.key")
    assert Identity.load_or_create(tmp_path / "node.key").public_key == identity.public_key


def private_pem(key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish", private_pem(Ed25519PrivateKey.generate())[:-40], private_pem(generate_private_key(SECP256R1()))],
    ids=["empty", "rubbish", "cut", "of another kind"],
)
def test_a_broken_or_foreign_key_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no Ed25519 private key"):
        Identity.load_or_create(path)
    assert path.read_bytes() == content


def test_a_folder_instead_of_a_key_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read or create the key"):
        Identity.load_or_create(tmp_path)
