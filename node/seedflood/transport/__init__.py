"""Links between nodes. Only this room uses grpc.aio, and every byte from the network is checked here, once."""

import os

_DIAGNOSTICS = ("GRPC_VERBOSITY", "GRPC_TRACE")


def _settle_environment() -> None:
    """Links depend on settings alone: of the variables that gRPC reads, only those that make it write more count.

    Proxies are switched off by an option of each channel, because other libraries may use these variables."""
    for name in list(os.environ):
        if name.upper().startswith("GRPC_") and name not in _DIAGNOSTICS:
            del os.environ[name]
    os.environ["GRPC_DNS_RESOLVER"] = "native"  # the system's, which also knows names of mDNS and of local modules
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else gRPC's core writes lines of its own among our logs


_settle_environment()
"""Here, for gRPC reads them once, when it is first used."""
