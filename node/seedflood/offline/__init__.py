"""What needs a model but no network: evaluation, replay of a journal, export, a sweep of learning rates."""
