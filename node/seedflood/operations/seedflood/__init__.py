"""What an operator sees of SeedFlood alone: which updates came and went, windows, traces, advice about rounds."""
