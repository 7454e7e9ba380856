"""The shell around one node: what gives the pure core its clock, disk, links, model and signals."""
