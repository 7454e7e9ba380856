"""What SeedFlood keeps: strands of bundles, and the sums that take their place."""
