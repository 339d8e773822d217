"""The cause that `probe.check` names, where the test's source says what both sides were computed by: such a check knows
the arguments, and runs the reference again with others."""

from __future__ import annotations

import sys

from pytest_probe import frameworks
from pytest_probe.check import Checker, Conditions
from pytest_probe.features.asserts.failed import FailedAssert, value_of
from pytest_probe.features.asserts.replacement import compared_calls, without_casts
from pytest_probe.registry import Registry
from pytest_probe.user_errors import allowing_refusal


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
        checker = Checker(Conditions(device=str(getattr(given, "device", "cpu"))), Registry.default())
        found = checker.compare(lambda *_, **__: given, reference, args, kwargs, dtype=False)
        causes = (output.diagnosis.cause for output in found[0].outputs if output.diagnosis is not None)
        return next(causes, "")
    return ""
