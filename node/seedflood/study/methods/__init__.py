"""All methods by name. Each module names the paper and the section that it follows."""

from collections.abc import Mapping

from seedflood.study.methods.central import AdamW, Lora, Mezo
from seedflood.study.methods.choco import ChocoSgd, ChocoSgdLora
from seedflood.study.methods.dsgd import Dsgd, DsgdLora
from seedflood.study.methods.dzsgd import Dzsgd, DzsgdLora
from seedflood.study.methods.gasloc import DAdam, Diloco, Gasloc
from seedflood.study.methods.method import Method
from seedflood.study.methods.seedflood import Coefficients, OneSided, Slopes, TwoSided

METHODS: Mapping[str, type[Method]] = {
    "seedflood": TwoSided,
    "seedflood-one-sided": OneSided,
    "coefficients": Coefficients,
    "slopes": Slopes,
    "dsgd": Dsgd,
    "choco": ChocoSgd,
    "dsgd-lora": DsgdLora,
    "choco-lora": ChocoSgdLora,
    "dzsgd": Dzsgd,
    "dzsgd-lora": DzsgdLora,
    "d-adam": DAdam,
    "diloco": Diloco,
    "gasloc": Gasloc,
    "adamw": AdamW,
    "lora": Lora,
    "mezo": Mezo,
}
