"""Network namespaces of one machine: hosts on two switches, and a cable between the switches that can be pulled.

    host 0 -- switch a ------ switch b -- host 2
    host 1 --'         cable         '-- host 3

When the cable is down nothing tells the hosts so: packets vanish, as in a real partition.
"""

import ctypes
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import IO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

PORT = 7070

BLOCK = "11.77.0"
"""Of the switches."""

OVERLAY_MTU = 1280
"""Of WireGuard and its kin, at least."""

OVERLAY_PORT = 51820

LARGE = 800
"""Bytes of a packet."""

NAMES = "seedflood-"
"""Of namespaces: then the test process, then a number."""

CONFIGURATION = Path("/etc/netns")
"""`ip netns exec NAME` shows the files of the folder NAME here in place of those in /etc."""

_CLONE_NEWNET = 0x40000000
"""Of sched.h."""

_numbers = count()


class Network:
    """`attach` hosts, `cut` and `heal`, `close`."""

    def __init__(self) -> None:
        remove_leftovers()
        self._prefix = f"{NAMES}{os.getpid()}-{next(_numbers)}"
        self._spaces: list[str] = []
        self._daemons: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._hosts = 0
        try:
            self._switches = [self._make_space("a"), self._make_space("b")]
            for switch in self._switches:
                _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
                _ip("-n", switch, "link", "set", "bridge", "up")
            self._plug(*self._switches, "cable")
            _ip("-n", self._switches[1], "link", "set", "cable", "master", "bridge", "up")
        except BaseException:
            self.close()
            raise

    def attach(self, side: int) -> tuple[str, str]:
        """One more host on this side (0 or 1): its address with the port, and its namespace."""
        number = self._hosts = self._hosts + 1
        space = self._make_space(f"h{number}")
        self._plug(self._switches[side], space, f"port{number}")
        address = f"{BLOCK}.{number}"
        _ip("-n", space, "address", "add", f"{address}/24", "dev", f"port{number}")
        for device in ("lo", f"port{number}"):
            _ip("-n", space, "link", "set", device, "up")
        return f"{address}:{PORT}", space

    def attach_two_and_two(self) -> dict[str, Sequence[str]]:
        """Hosts 0 and 1 on one side, 2 and 3 on the other: on a ring the links 1-2 and 3-0 use the cable."""
        addresses, spaces = zip(*(self.attach(side) for side in (0, 0, 1, 1)), strict=True)
        return {"addresses": addresses, "spaces": spaces}

    def attach_behind_nat(self, side: int, *, mtu: int = 1500) -> str:
        """One more host, behind a router of its own on this side: its namespace. It reaches everyone under the address
        of the router, and nobody reaches it. All of them have the same address at home."""
        _, router = self.attach(side)
        number = self._hosts
        home = self._make_space(f"home{number}")
        _ip("link", "add", "home", "netns", router, "type", "veth", "peer", "name", "router", "netns", home)
        for space, device, end in ((router, "home", "192.168.7.1"), (home, "router", "192.168.7.2")):
            _ip("-n", space, "address", "add", f"{end}/24", "dev", device)
            _ip("-n", space, "link", "set", device, "up", "mtu", str(mtu))
        _ip("-n", home, "link", "set", "lo", "up")
        _ip("-n", home, "route", "add", "default", "via", "192.168.7.1")
        _run(*inside(router), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for rule in (
            ("-t", "nat", "-A", "POSTROUTING", "-o", f"port{number}", "-j", "MASQUERADE"),
            ("-A", "FORWARD", "-i", "home", "-j", "ACCEPT"),
            ("-A", "FORWARD", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"),
            ("-P", "FORWARD", "DROP"),
        ):
            _run(*inside(router), "iptables", *rule)
        return home

    def lay_over(self, home: str, space: str, address: str) -> tuple[str, str]:
        """WireGuard from a host behind NAT to one at that address: the addresses of both in the overlay, with ports."""
        keys = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        ends = [f"100.64.0.{number}" for number in (1, 2)]
        dials = f"endpoint={address.partition(':')[0]}:{OVERLAY_PORT}\npersistent_keepalive_interval=1\n", ""
        for k, one in enumerate((home, space)):
            device = f"wg{os.getpid()}-{next(_numbers)}"
            self._serve(one, "UAPI listener started", "env", "LOG_LEVEL=verbose", "wireguard-go", "-f", device)
            private, public = keys[k].private_bytes_raw().hex(), keys[1 - k].public_key().public_bytes_raw().hex()
            with socket.socket(socket.AF_UNIX) as daemon:
                daemon.connect(f"/var/run/wireguard/{device}.sock")
                setting = f"set=1\nprivate_key={private}\nlisten_port={OVERLAY_PORT}\npublic_key={public}\n{dials[k]}"
                daemon.sendall(f"{setting}allowed_ip={ends[1 - k]}/32\n\n".encode())
                assert daemon.recv(100).startswith(b"errno=0\n")
            _ip("-n", one, "address", "add", f"{ends[k]}/10", "dev", device)
            _ip("-n", one, "link", "set", device, "up", "mtu", str(OVERLAY_MTU))
        return f"{ends[0]}:{PORT}", f"{ends[1]}:{PORT}"

    def name(self, space: str, names: dict[str, str]) -> None:
        """What a namespace knows hosts by: address by name. For processes that start later."""
        folder = CONFIGURATION / space
        folder.mkdir(parents=True)
        lines = [f"{address} {name}" for name, address in {"localhost": "127.0.0.1", **names}.items()]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # which answers at once that it is none

    def hide(self, space: str, address: str) -> None:
        """From here on the namespace cannot reach that address."""
        _ip("-n", space, "route", "add", "blackhole", address)

    def lose_large_packets(self, space: str) -> None:
        """From here on those that come to this namespace vanish."""
        _run(*inside(space), "iptables", "-A", "INPUT", "-m", "length", "--length", f"{LARGE}:65535", "-j", "DROP")

    def lose_no_packets(self, space: str) -> None:
        _run(*inside(space), "iptables", "-F", "INPUT")

    def device(self, space: str) -> str:
        """Of an attached host, on its switch."""
        return re.findall(r"^\d+: (port\d+)@", _ip("-n", space, "-o", "link"), re.MULTILINE)[0]

    def link_local(self, space: str) -> str:
        """The address of an attached host on its link, without the device. The kernel makes it, and tries it first."""
        told = _ip("-n", space, "-6", "-o", "address", "show", "dev", self.device(space), "scope", "link")
        return re.findall(r"inet6 (fe80:[0-9a-f:]+)/", told)[0]

    def cut(self) -> None:
        _ip("-n", self._switches[0], "link", "set", "cable", "down")

    def heal(self) -> None:
        _ip("-n", self._switches[0], "link", "set", "cable", "up")

    def close(self) -> None:
        """Devices go with their namespaces."""
        for daemon in self._daemons:
            daemon.terminate()
            daemon.wait(30)
        for reader in self._readers:
            reader.join()
        self._daemons.clear()
        self._readers.clear()
        for space in self._spaces:
            _remove(space)
        self._spaces.clear()

    def _serve(self, space: str, ready: str, *words: str) -> None:
        """Starts a daemon in a namespace and waits until it says that it is ready."""
        daemon = subprocess.Popen([*inside(space), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._daemons.append(daemon)
        assert daemon.stdout is not None
        assert any(ready in line for line in daemon.stdout), f"{words[0]} ended"
        self._readers.append(threading.Thread(target=_read_on, args=(daemon.stdout,), daemon=True))
        self._readers[-1].start()

    def _make_space(self, name: str) -> str:
        space = f"{self._prefix}-{name}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        return space

    def _plug(self, switch: str, space: str, device: str) -> None:
        """A cable from the switch to a namespace; the device has the same name at both ends."""
        _ip("link", "add", device, "netns", switch, "type", "veth", "peer", "name", device, "netns", space)
        _ip("-n", switch, "link", "set", device, "master", "bridge", "up")


def inside(space: str) -> tuple[str, ...]:
    """The words before a command that is to run in a namespace."""
    return ("ip", "netns", "exec", space)


def enter(space: str) -> None:
    """From here on this process, which has one thread, is on the network of that namespace."""
    with (Path("/run/netns") / space).open() as file:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")


def remove_leftovers() -> None:
    """Namespaces of test processes that were killed."""
    for line in _ip("netns", "list").splitlines():
        space = line.split()[0]
        owner = space.removeprefix(NAMES).partition("-")[0]
        if space.startswith(NAMES) and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(space)


def _read_on(file: IO[str]) -> None:
    """So that nobody who writes there has to wait."""
    with file:
        file.read()


def _remove(space: str) -> None:
    _ip("netns", "delete", space)
    shutil.rmtree(CONFIGURATION / space, ignore_errors=True)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, f"{' '.join(words)}: {ran.stderr.strip()}"
    return ran.stdout
