"""How hosts train real models (`model`): on SST-2 and TREC, and as language models on IMDB.

SeedFlood runs as daemons over loopback (`daemons`), with nothing tuned. AdamW and LoRA, with a cosine and the best of
three learning rates, and DiLoCo are the code of the study, in one process (`yardsticks`). All see the same rows, and as
many in a step. Takes hours on two cores; what has been measured is kept, one line for each cell.
"""
