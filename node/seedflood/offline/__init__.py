"""What needs a model but no network: evaluation, replay of a journal, a sweep of learning rates."""
