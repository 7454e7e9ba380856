"""Several nodes on this machine: their graph, their ports, their processes."""
