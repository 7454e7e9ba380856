"""What is learned: an objective makes batches of examples, and measures a model on them."""
