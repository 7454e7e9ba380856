"""Links between nodes. Only this room uses grpc.aio, and every byte from the network is checked here, once."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
"""gRPC's core would write its own lines to stderr, among our logs. Errors that matter reach us as a status. gRPC reads
the variable when it is imported."""
