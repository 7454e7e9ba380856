"""Daemons that reach each other on one machine, or through ports that something there passes on, need no setting."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from ledgers import finish
from processes import Host, Hosts

from seedflood.cluster.ports import reserve_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

RUN = {"steps": 5}


@contextlib.contextmanager
def forwarded(here: str, port: int) -> Iterator[str]:
    """An address that leads to this port of loopback, as `ssh -L` and `docker run -p` make them. here: where it
    listens."""
    ends: list[socket.socket] = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                ends.append(one)
                try:
                    other = socket.create_connection(("127.0.0.1", port))
                except OSError:  # nobody listens yet
                    one.close()
                    continue
                ends.append(other)
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server((here, 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"{here}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                end.close()


def address_beyond_loopback() -> str:
    """One of this machine, as a peer elsewhere would dial it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def dial(host: Host, address: str) -> None:
    with (host.folder / "peers.toml").open("a") as file:
        file.write(f'[[peers]]\naddress = "{address}"\n')


@pytest.mark.parametrize("dialled", ["127.0.0.1", "localhost", "0.0.0.0", "its own address"])
def test_a_relay_at_all_addresses_is_reached_at_any_of_them(hosts: Hosts, dialled: str):
    port, *_ = reserve_ports(1)
    relay, *trainers = hosts.make(3, [], RUN | {"clients": 2}, addresses=(f"0.0.0.0:{port}", "", ""))
    settings = relay.folder / "peers.toml"
    settings.write_text(settings.read_text().replace("[node]\n", '[node]\nrole = "relay"\n'))
    for one in trainers:
        dial(one, f"{address_beyond_loopback() if dialled == 'its own address' else dialled}:{port}")
    for one in (relay, *trainers):
        one.start()
    finish(trainers)


@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("find", [lambda: "127.0.0.1", address_beyond_loopback], ids=["ssh -L", "docker -p"])
def test_a_port_that_is_passed_on_leads_to_a_host_wherever_it_listens(
    hosts: Hosts, find: Callable[[], str], listens: str
):
    port, *_ = reserve_ports(1)
    listener, dialler = hosts.make(2, [], RUN, addresses=(f"{listens}:{port}", ""))
    with forwarded(find(), port) as address:
        dial(dialler, address)
        for one in (listener, dialler):
            one.start()
        finish([listener, dialler])
