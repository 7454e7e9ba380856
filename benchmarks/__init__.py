"""Benchmarks: each figure is a ratio of two things run in turn in one process; absolute times are printed beside them.

`make bench` runs all, `python -m benchmarks NAME --json` one. RESULTS.md has the figures that stand; `--keep` writes
them. notes/ say how each was measured, by date, failed tries too.
"""

import seedflood.training  # noqa: F401  # before PyTorch: its threads wait as those of daemons do
