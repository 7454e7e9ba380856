"""The learning rate of a run that names none.

By slopes along seeded directions it is 600 / number of parameters: 2.3e-4 for 2.6 M, the only size it was measured on
(tiny-opt and SST-2, 4 origins x batch 16, 400 steps, three run seeds: accuracy 0.646 to 0.654, loss 0.622 to 0.630;
with 800 0.630 to 0.654, with 450 0.633 to 0.667).

By Adam it is 2.4e-3 / rank: an increment moves by a learning rate at most, so a weight by about rank times that,
whatever the model. Same model, data and origins, gradients of rank 8 told in 8 bits, 48 steps, accuracy and loss of
three run seeds: 2.4e-3 with a cosine 0.686 / 0.592, 0.688 / 0.591, 0.682 / 0.599; 2e-3 and constant 0.692 / 0.596,
0.664 / 0.598, 0.674 / 0.595; 3.2e-3 with 4 steps of warm-up and down along a line 0.670 / 0.591, 0.680 / 0.585,
0.674 / 0.596; 4.8e-3 and constant 0.694 / 0.585, 0.681 / 0.579, 0.661 / 0.633.
"""

from seedflood.config import RunSettings

LEARNING_RATE_PARAMETERS = 600.0

ADAM_WEIGHT_CHANGE = 2.4e-3


def default_learning_rate(run: RunSettings, parameters_count: int) -> float:
    """By estimate, optimizer, rank and size."""
    if run.optimizer == "adam":
        return ADAM_WEIGHT_CHANGE / run.rank
    return LEARNING_RATE_PARAMETERS / parameters_count
