"""Why a peer does not answer in time: gRPC does not report how far a dial has come, and a bare connection does.

Where large packets are lost (the MTU of the path is smaller than that of the interface, and no ICMP says so), a
connection opens, for that takes small ones, and then the certificates of TLS never arrive.
"""

import asyncio

LOST_OR_HUNG = (
    "large packets are lost on the way (lower the MTU of the interface, tunnel or VPN, or let ICMP pass; "
    "`ping -M do -s 1400` tells), or that host hangs"
)


async def cause(address: str, seconds: float, *, is_secured: bool) -> str:
    """What is known of an address that did not answer. is_secured: the handshake of TLS had ended."""
    if is_secured:
        return f"the TLS handshake ends, but no hello comes; {LOST_OR_HUNG}"
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return "no connection opens in time; that host is down, its address is another one, or a firewall drops packets"
    except OSError as error:
        return error.strerror or str(error)
    writer.transport.abort()
    return f"the connection opens, but the TLS handshake does not end; {LOST_OR_HUNG}"
