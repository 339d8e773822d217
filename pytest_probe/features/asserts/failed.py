"""The assert that failed, read from the frames of its traceback: passing asserts cost nothing, and whatever name a test
has for the function, it is the same frame.

In: the exception, and what puts into the place of an assert what ran. Out: both operands, and the tolerance.
"""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

from msgspec import Struct

from pytest_probe.features.asserts.measured import PREDICATES, is_assert

# Takes a module of one assert and the text of its file.
Rewrite = Callable[[ast.Module, bytes], None]
# Methods that give a tensor's values in another dtype or place, and change nothing.
CASTS = frozenset("bfloat16 contiguous cpu detach double flatten float half numpy".split())
# What the functions call their tolerances.
_TOLERANCES = ("rtol", "atol", "decimal", "nulp", "maxulp")
# Frames of these are not the test's: the standard library's asserts, and what measures passing asserts.
_BETWEEN = ("unittest.", __name__.rpartition(".")[0])
# A line, and the column in bytes of what ran there; -1 where it is not known.
_Place = tuple[int, int]
_Frames = Sequence[tuple[FrameType, _Place]]


class FailedAssert(Struct, frozen=True):
    """name is the function that the test called ("assert_close"), call the call of it in the test's statement; both are
    None where the source is not there. tolerance holds rtol, atol and the like by name; frame is the test's.
    """

    name: str
    actual: Any
    expected: Any
    tolerance: Mapping[str, Any]
    frame: FrameType
    statement: ast.stmt | None
    call: ast.Call | None


def failed_assert(error: BaseException | None, rewrite: Rewrite) -> FailedAssert | None:
    """What failed, or what failed first where a helper says it in its own words; None for another exception, and where
    the operands are not known any more."""
    while isinstance(error, AssertionError):
        frames = [each for each in _walk(error.__traceback__) if not _module(each[0]).startswith(_BETWEEN)]
        inside = [place for place, (frame, _) in enumerate(frames) if is_assert(_module(frame), frame.f_code.co_name)]
        found = None
        if inside and inside[-1]:
            found = _of_function(frames, inside[-1])
        elif frames:
            found = _of_statement(*frames[-1], rewrite)
        if found is not None:
            return found
        error = error.__cause__ or error.__context__
    return None


def _walk(raised: TracebackType | None) -> Iterator[tuple[FrameType, _Place]]:
    while raised is not None:
        # Python 3.10 has no columns. Two bytes are one instruction.
        positions = getattr(raised.tb_frame.f_code, "co_positions", lambda: ())()
        column = next(islice(positions, raised.tb_lasti // 2, None), (None,) * 3)[2]
        yield raised.tb_frame, (raised.tb_lineno, -1 if column is None else column)
        raised = raised.tb_next


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _of_function(frames: _Frames, place: int) -> FailedAssert:
    """The innermost function, which got arrays where those around it may have got lists of them."""
    inside = frames[place][0]
    code, names = inside.f_code, inside.f_locals
    sides = [names.get(name) for name in code.co_varnames[: code.co_argcount] if name != "self"][:2]
    given = {name: names[name] for name in _TOLERANCES if names.get(name) is not None}
    if "rtol" in names and not given:
        given["by_dtype"] = True
    around = (each for each in reversed(frames[:place]) if ".testing" not in _module(each[0]))
    frame, at = next(around, frames[0])
    statement = _statement(frame, at)
    known = {**frame.f_globals, **frame.f_locals}

    def is_it(call: ast.Call) -> bool:
        if _name(call.func) == code.co_name:
            return True
        with suppress(AttributeError, KeyError):
            return getattr(inspect.unwrap(value_of(call.func, known)), "__code__", None) is code
        return False

    call = next(_calls(statement, is_it), None)
    return FailedAssert(code.co_name, sides[0], sides[1], given, frame, statement, call)


def _of_statement(frame: FrameType, at: _Place, rewrite: Rewrite) -> FailedAssert | None:
    statement = _statement(frame, at)
    written = list(_calls(statement, lambda call: _name(call.func) in PREDICATES))
    if statement is None or not written:
        return None
    ran = _ran(statement, frame, rewrite) if isinstance(statement, ast.Assert) else None
    names = {**frame.f_globals, **frame.f_locals}
    for call in written if ran is None else ran:
        found = _bound(call, names)
        if found is not None:
            name, (actual, expected), given = found
            source = next((each for each in written if _name(each.func) == name), None)
            return FailedAssert(name, actual, expected, given, frame, statement, source)
    return None


def _statement(frame: FrameType, at: _Place) -> ast.stmt | None:
    """The innermost statement at a place of a frame's file."""
    try:
        tree = ast.parse(source_of(frame))
    except (SyntaxError, ValueError):
        return None
    line, _ = at
    there = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    around = [node for node in there if (node.lineno, node.col_offset) <= at < (_end(node), node.end_col_offset or 0)]
    if around:
        return max(around, key=lambda node: (node.lineno, node.col_offset))
    # Which of several statements of one line it was is not known.
    return max(there, key=lambda node: (node.lineno, -_end(node)), default=None)


def source_of(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _calls(statement: ast.stmt | None, wanted: Callable[[ast.Call], bool]) -> Iterator[ast.Call]:
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.Call) and wanted(node):
            yield node


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _ran(statement: ast.Assert, frame: FrameType, rewrite: Rewrite) -> list[ast.Call] | None:
    """The calls as the test runner's form of the assert made them, those alone that gave something false. Each of their
    operands is a variable there, which the frame still has: none is computed again. None where it ran as written."""
    module = ast.Module([copy.deepcopy(statement)], [])
    rewrite(module, source_of(frame).encode())
    made = [
        (frame.f_locals.get(target.id), node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in frame.f_locals
    ]
    # A framework's own false is an array with no dimensions.
    false = [
        call for value, call in made if value is False or (list(getattr(value, "shape", [None])) == [] and not value)
    ]
    return false if made else None


def _bound(call: ast.Call, names: Mapping[str, Any]) -> tuple[str, Sequence[Any], Mapping[str, Any]] | None:
    """The name of the function, both operands and the tolerances of a call whose operands are names; None where they
    are not, or the function is another one."""
    try:
        function = value_of(call.func, names)
        args = [value_of(arg, names) for arg in call.args]
        given = {keyword.arg: value_of(keyword.value, names) for keyword in call.keywords}
    except (AttributeError, KeyError, TypeError):
        return None
    name = str(getattr(function, "__name__", ""))
    if name not in PREDICATES:
        return None
    owner = getattr(function, "__self__", None)
    args = [owner, *args] if hasattr(owner, "shape") else args
    args += [given[key] for key in ("input", "a", "a1", "x", "other", "b", "a2", "y") if key in given]
    positional = dict(zip(("rtol", "atol"), args[2:], strict=False))
    known = {key: value for key, value in (positional | given).items() if key in ("rtol", "atol")}
    return (name, args[:2], {**PREDICATES[name], **known}) if len(args) > 1 else None


def value_of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a name, an attribute, a constant, or a cast of one. Raises KeyError for what would have to be
    computed."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(value_of(node.value, names), node.attr)
    if isinstance(node, ast.Call) and not node.args and not node.keywords and _name(node.func) in CASTS:
        return value_of(node.func, names)()
    raise KeyError(ast.unparse(node))
