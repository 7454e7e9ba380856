"""Links between nodes: grpc.aio lives here alone, and foreign bytes are checked here, once."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
"""gRPC's core writes lines of its own to stderr, where our logs are; what matters comes as a status. Read at import."""
