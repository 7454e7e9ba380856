"""Training: the model replica, zeroth-order estimates and the data. torch is imported in this package alone."""
