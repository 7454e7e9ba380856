"""What SeedFlood keeps: segments of bundles, and the sums that take their place."""
