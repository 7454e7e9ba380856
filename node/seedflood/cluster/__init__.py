"""Several nodes on this machine: their graph, ports and processes."""
