"""Countdown: a sum that uses each of the given numbers once and makes the target."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

SIGNS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
SUM = re.compile(r"[0-9+\-*/() ]{1,200}")
"""What a sum may consist of. Longer ones could nest too deeply."""


def countdown(prompt: str, completion: str, row: Mapping[str, Any]) -> float:
    """1 for a sum with +, -, * and / that uses each of `numbers`, a list of integers in the row, once, and whose value
    is the row's `target`. Nothing of the text is run."""
    text, used = completion.strip(), list[int]()
    if SUM.fullmatch(text) is None:
        return 0.0
    try:
        value = _value(ast.parse(text, mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return 0.0
    return float(value == Fraction(str(row["target"])) and sorted(used) == sorted(row["numbers"]))


def _value(node: ast.expr, used: list[int]) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            used.append(number)
            return Fraction(number)
        case ast.BinOp(left, sign, right) if type(sign) in SIGNS:
            return SIGNS[type(sign)](_value(left, used), _value(right, used))
    raise ValueError("no sum of numbers")
