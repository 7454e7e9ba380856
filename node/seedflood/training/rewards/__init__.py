"""What a text that a model wrote is worth."""
