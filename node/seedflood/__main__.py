"""`python -m seedflood` is `seedflood-node`."""

from seedflood.cli import node_main

if __name__ == "__main__":
    node_main()
