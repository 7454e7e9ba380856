"""How hosts train real models (`model`): on SST-2 and TREC, and as language models on IMDB.

SeedFlood runs with nothing tuned: two hosts as daemons over loopback (`daemons`), sixteen in one process
(`yardsticks`). AdamW, LoRA, DiLoCo and DSGD with LoRA are the code of the study, in one process, at the best of three
learning rates. All see the same rows, and as many in a step. Takes hours on two cores; what has been measured is kept,
one line for each cell.
"""
