"""What an operator sees of a running node: event log, metrics, status page, probes.

This room is read-only. The driver's observer seam feeds it, and it reads values of the core. Nothing here can change
what a node does, and a fault here (a full disk under the event log, a scraper that hangs) never ends the node.
"""

import os


def _settle_environment() -> None:
    """Metrics depend on nothing else: PROMETHEUS_MULTIPROC_DIR, which a web server beside us may want, would put them
    into files of a folder."""
    for name in list(os.environ):
        if name.upper().startswith("PROMETHEUS_"):
            del os.environ[name]


_settle_environment()
"""Here, for prometheus_client reads them once, when it is first imported."""
