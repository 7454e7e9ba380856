"""What needs a model and no network: evaluation, replay of a journal, a sweep of learning rates."""
