"""The learning rate of a run that names none.

By slopes along seeded directions it is 600 / number of parameters: 2.3e-4 for 2.6 M, the only size it was measured on
(tiny-opt and SST-2, 4 origins x batch 16, 400 steps, three run seeds: accuracy 0.646 to 0.654, loss 0.622 to 0.630;
with 800 0.630 to 0.654, with 450 0.633 to 0.667).
"""

from seedflood.config import RunSettings

LEARNING_RATE_PARAMETERS = 600.0

ADAM_WEIGHT_CHANGE = 2e-3
"""With Adam an increment moves by a learning rate at most, so a weight by about rank times that, whatever the model."""


def default_learning_rate(run: RunSettings, parameters_count: int) -> float:
    """By estimate, optimizer, rank and size."""
    if run.optimizer == "adam":
        return ADAM_WEIGHT_CHANGE / run.rank
    return LEARNING_RATE_PARAMETERS / parameters_count
