"""What outlives the process: sqlite lives here alone."""
