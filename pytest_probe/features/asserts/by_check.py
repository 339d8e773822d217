"""Where the test's source says what both sides were computed by: the lines that put a check without a tolerance into
the place of an assert, and the cause that `probe.check` names. Such a check knows the arguments, and runs the reference
again with others."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from types import FrameType

from pytest_probe import frameworks
from pytest_probe.check import Checker, RunRequest
from pytest_probe.features.asserts.failed import CASTS, FailedAssert, source_of, value_of
from pytest_probe.registry import Registry
from pytest_probe.user_errors import allowing_refusal

# What these give are inputs, and not what is tested.
_MAKERS = frozenset("arange array asarray empty from_numpy full linspace load ones rand randn tensor zeros".split())


def replacement(failed: FailedAssert) -> list[str]:
    """Three lines; none where it is not known what gave both sides."""
    calls = compared_calls(failed)
    if calls is None:
        return []
    actual, expected = calls
    kwargs = ", ".join(f'"{each.arg}": {ast.unparse(each.value)}' for each in actual.keywords)
    more = f", kwargs={{{kwargs}}}" if kwargs else ""
    function, reference = ast.unparse(actual.func), ast.unparse(expected.func)
    inputs = ", ".join(map(ast.unparse, actual.args))
    return ["probe.check(", f"    {function}, reference={reference}, inputs=[{inputs}]{more},", ")"]


def compared_calls(failed: FailedAssert) -> tuple[ast.Call, ast.Call] | None:
    """The calls that gave both sides; None where a side is not what one call gave, or both got other arguments."""
    if failed.call is None or failed.statement is None or len(failed.call.args) < 2:
        return None
    tree = ast.parse(source_of(failed.frame))
    # What each name was assigned last before the assert; None where that was another statement.
    values = {
        id(node.targets[0]): node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.targets
    }
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    lines = range(failed.frame.f_code.co_firstlineno, failed.statement.lineno)
    there = sorted((node for node in stored if node.lineno in lines), key=lambda node: node.lineno)
    before = {node.id: values.get(id(node)) for node in there}
    actual, expected = (_made_by(side, before) for side in failed.call.args[:2])
    if actual is None or expected is None or _arguments(actual) != _arguments(expected):
        return None
    alike = ast.unparse(actual.func) == ast.unparse(expected.func)
    named = all(_is_function(each, failed.frame) for each in (actual.func, expected.func))
    return (actual, expected) if named and not alike else None


def _made_by(side: ast.expr, before: Mapping[str, ast.expr | None]) -> ast.Call | None:
    """The call that gave a side, with positional arguments to give to another function as well."""
    found: ast.expr | None = without_casts(side)
    if isinstance(found, ast.Name):
        found = before.get(found.id)
    found = None if found is None else without_casts(found)
    if not isinstance(found, ast.Call) or not found.args or any(each.arg is None for each in found.keywords):
        return None
    return None if any(isinstance(arg, ast.Starred) for arg in found.args) else found


def without_casts(side: ast.expr) -> ast.expr:
    """Without casts: a check makes its own."""
    while (
        isinstance(side, ast.Call)
        and isinstance(side.func, ast.Attribute)
        and side.func.attr in (*CASTS, "astype", "to")
    ):
        side = side.func.value
    return side


def _is_function(node: ast.expr, frame: FrameType) -> bool:
    """Is it the name of something that is tested, and no method of a tensor or of a number?"""
    name, root = ast.unparse(node), node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or name.rpartition(".")[2] in _MAKERS:
        return False
    owner = frame.f_locals.get(root.id, frame.f_globals.get(root.id))
    return owner is not None and (root is node or not hasattr(owner, "shape"))


def _arguments(call: ast.Call) -> list[str]:
    keywords = sorted((each.arg or "", ast.unparse(each.value)) for each in call.keywords)
    return [ast.unparse(without_casts(arg)) for arg in call.args] + [f"{name}={value}" for name, value in keywords]


def cause_by_check(failed: FailedAssert) -> str:
    """The cause; "" where none is named, or where something would have to be computed to ask for it."""
    calls = compared_calls(failed)
    if calls is None or failed.call is None or frameworks.MODULES[frameworks.DEFAULT] not in sys.modules:
        return ""
    actual, expected = calls
    names = {**failed.frame.f_globals, **failed.frame.f_locals}
    try:
        args = [value_of(arg, names) for arg in actual.args]
        kwargs = {str(each.arg): value_of(each.value, names) for each in actual.keywords}
        reference = value_of(expected.func, names)
    except (AttributeError, KeyError):
        return ""
    side = without_casts(failed.call.args[0])
    try:
        given = value_of(side, names)
    except (AttributeError, KeyError):
        given = failed.actual
    with allowing_refusal():
        # What the test got is judged, and its function not called again.
        checker = Checker(RunRequest(device=str(getattr(given, "device", "cpu"))), Registry.default())
        found = checker.compare(lambda *_, **__: given, reference, args, kwargs, dtype=False)
        causes = (output.diagnosis.cause for output in found[0].outputs if output.diagnosis is not None)
        return next(causes, "")
    return ""
