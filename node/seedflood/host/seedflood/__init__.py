"""SeedFlood on a host: how what it keeps, computes and tells meets journal, compute thread and operators."""
