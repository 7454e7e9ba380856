"""The shell around one node: it gives the pure core a clock, a disk, links, a model and signals."""
