"""All methods by name. Each module names the paper and the section that it follows."""

from collections.abc import Mapping

from study.methods.central import AdamW, Lora, Mezo
from study.methods.choco import ChocoSgd, ChocoSgdLora
from study.methods.dsgd import Dsgd, DsgdLora
from study.methods.dzsgd import Dzsgd, DzsgdLora
from study.methods.gasloc import DAdam, Diloco, Gasloc
from study.methods.method import Method
from study.methods.seedflood import Coefficients, TwoSided

METHODS: Mapping[str, type[Method]] = {
    "seedflood": TwoSided,
    "coefficients": Coefficients,
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
