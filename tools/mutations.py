"""The small bugs that ``tools/mutants.py`` puts into files: what may be changed, and into what."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WORDS = {"__repr__", "__str__", "in_words", "paragraph", "description"}  # functions that only make text
CHECKS = {"strict", "stacklevel"}  # arguments that matter only for errors and warnings
SWAPS: dict[type[ast.AST], list[type[ast.AST]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.Pow: [ast.Mult],
    ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
}
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil"}
NAMES |= {"any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what the changed lines were and are, and the function in which they stand."""

    file: str
    line: int
    function: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the mutant while other lines of its file change."""
        return self.file, self.before, self.after


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield all mutants of a file of the package, in the order of its lines."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = text.encode()
    for node, function in places(ast.parse(text), ""):
        first, last = starts[node.lineno - 1], starts[node.end_lineno]
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for new in changes(node):
            changed = data[:start] + new.encode() + data[end:]
            after = (data[first:start] + new.encode() + data[end:last]).decode()
            before = data[first:last].decode()
            yield Mutant(file, node.lineno, function, one_line(before), one_line(after), changed.decode())


def one_line(text: str) -> str:
    """Return the text on one line, with single spaces."""
    return " ".join(text.split())


def places(node: ast.AST, function: str) -> Iterator[tuple[Any, str]]:
    """Yield the nodes that may be changed, each with the qualified name of the outermost function around it.

    Text is left out: docstrings, messages of errors and warnings, annotations, decorators, assertions, and functions
    that only make text.
    """
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.JoinedStr, ast.Assert, ast.Import)):
                continue
            if isinstance(child, ast.Call) and "warn" in ast.unparse(child.func):
                continue
            if isinstance(child, ast.keyword) and child.arg in CHECKS:
                continue
            inside = function
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child.name in WORDS:
                    continue
                is_nested = function.endswith("()")
                inside = function if is_nested else f"{function}{child.name}"
                inside += "" if is_nested else "." if isinstance(child, ast.ClassDef) else "()"
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child, inside
            if not isinstance(child, ast.Raise):
                yield from places(child, inside)


def changes(node: ast.AST) -> Iterator[str]:  # noqa: PLR0912 (one branch per kind of node)
    """Yield the texts that may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op]):
            yield from (with_field(node, ops=[new()]) for new in SWAPS[type(op)])
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            yield from (with_field(node, op=new()) for new in SWAPS.get(type(op), []))
        case ast.AugAssign(op=op):
            yield from (with_field(node, op=new())[1:-1] for new in SWAPS.get(type(op), []))
            yield "pass"
        case ast.Constant(value=bool(value)):
            yield repr(not value)
        case ast.Constant(value=int(value)):
            yield from ("1",) if value == 0 else ("0", "2") if value == 1 else (repr(value + 1),)
        case ast.Constant(value=float(value)):
            yield repr(2 * value or 1.0)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Name(id=name) if name in NAMES:
            yield NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            yield with_field(node, attr=NAMES[name])
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield "return None"
        case ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break() | ast.Raise():
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Call(args=args, keywords=keywords):
            named = [each for each in keywords if each.arg not in {None, *CHECKS}]
            yield from (with_field(node, keywords=[each for each in keywords if each is not out]) for out in named)
            if len(args) > 1 and not any(isinstance(each, ast.Starred) for each in args):
                yield with_field(node, args=args[:-1])


def with_field(node: ast.AST, **fields: Any) -> str:
    """Return the text of a node in parentheses, with some of its fields replaced."""
    return f"({ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), **fields}))})"


def function_at(text: str, line: int) -> str:
    """Return the qualified name of the outermost function around a line, in the form of ``Mutant.function``."""
    around = [
        function
        for node, function in places(ast.parse(text), "")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return around[0] if around else ""
