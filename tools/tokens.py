"""How much code there is: tokens of Python by room, and how dense it is.

    python tools/tokens.py [FOLDER]

A token is a name, an operator or a number, as `tokenize` yields them. A room is a package and the one below it. Code
that protoc wrote is left out, and so are docstrings and comments where lines are counted.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "node" / "seedflood"
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
DENSE: dict[str, tuple[type[ast.AST], ...]] = {
    "comprehensions": (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    "conditional expressions": (ast.IfExp,),
    "walruses": (ast.NamedExpr,),
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    rooms = Counter[str]()
    dense = Counter[str]()
    lines = 0
    for path in sorted(folder.rglob("*.py")):
        if path.stem.endswith(("_pb2", "_pb2_grpc")):
            continue
        source = path.read_text()
        tree = ast.parse(source)
        room = "/".join(path.relative_to(folder).parts[:-1][:2]) or "."
        rooms[room] += count_tokens(source)
        dense.update(name for node in ast.walk(tree) for name, kinds in DENSE.items() if isinstance(node, kinds))
        lines += count_lines(source, tree)
    for room, tokens in rooms.most_common():
        print(f"{tokens:8,}  {room}")
    total = sum(rooms.values())
    shares = ", ".join(f"{1000 * dense[name] / lines:.0f} {name}" for name in DENSE)
    print(f"{total:8,}  in all, {total / lines:.2f} a line; in 1,000 lines {shares}")


def count_tokens(source: str) -> int:
    return sum(token.type in COUNTED for token in tokenize.generate_tokens(io.StringIO(source).readline))


def count_lines(source: str, tree: ast.Module) -> int:
    """The lines that hold code."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in documented for number, line in lines)


if __name__ == "__main__":
    main()
