"""SeedFlood on a host: its driver and engine, which connect it with journal, compute thread and operators."""
