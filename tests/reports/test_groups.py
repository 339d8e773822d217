from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace

from pytest_probe.model.details import Details
from pytest_probe.model.dump import Frame
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Diagnosis, OutputVerdict, Verdict
from pytest_probe.reports.groups import MAX_GROUPS, GroupMember, Groups, group_of

STEPS = "errors of 2^-13 of its size to either side, as large as those of operands with about 11 bits"


def failed(
    number: int,
    cause: str = "",
    *,
    api: str = "Functional.linear",
    direction: str = "forward",
    reason: str = "noise ratio 512 (limit 64)",
    line: int = 0,
    place: int | None = None,
    kind: str = "",
) -> Result:
    """A case that failed, with a passing output before the one that failed."""
    found = Diagnosis(3, 6, {}, "", "rows 1:2 of dim 0", cause, "precision" if cause else "")
    output = OutputVerdict("output.1", (2, 3), "float32", "error", "noise", reason, diagnosis=found)
    judged = Verdict("error", "auto", kind and reason, kind, outputs=() if kind else (_passed(), output))
    stack = (Frame("/home/user/models.py", line, "forward", "y = f(x)"),) if line else ()
    return Result.of(
        judged,
        PortableId("dump.json", f"{api}.{number}.{direction}"),
        api=api,
        direction=direction,
        dtype="float32",
        device="cpu",
        duration=0.0,
        place=place,
        details=Details.of("pytest x", (), stack, None, None) if line else None,
    )


def _passed() -> OutputVerdict:
    return OutputVerdict("output.0", (2,), "float32", "pass", "noise")


def lines(*results: Result) -> list[str]:
    groups = Groups()
    for result in results:
        groups.add(GroupMember.of(result))
    return list(groups.lines())


def test_one_cause_of_one_api_is_one_group() -> None:
    like = [failed(number, STEPS.replace("13", str(12 + number)), line=10 + number) for number in range(5)]
    other = failed(0, "all times 1.0003", api="Functional.gelu", line=40)
    assert lines(*like, other) == [
        f"5 errors: looks like {STEPS.replace('13', '12')}, Functional.linear, first at models.py:10 "
        "(record linear.0.forward)",
        "1 error: looks like all times 1.0003, Functional.gelu, at models.py:40 (record gelu.0.forward)",
    ]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (failed(0, STEPS), failed(1, STEPS, direction="backward"), True),
        (failed(0, STEPS), failed(1, STEPS, api="Functional.conv2d"), False),
        (failed(0, STEPS), failed(1, "all times 2"), False),
        (failed(0, "all times 1.0003"), failed(1, "all times 1.0004"), True),
        (failed(0, "rounded to float16"), failed(1, "rounded to float8"), False),
        (failed(0, "index 31 of dim 0 equals index 30"), failed(1, "index 7 of dim 0 equals index 6"), True),
        (failed(0, STEPS), replace(failed(1, STEPS), verdict="warning"), False),
        # Without a cause: the same test that fails, in one direction.
        (failed(0), failed(1, reason="noise ratio 5e+06 (limit 64), RMS noise ratio 3 (limit 2)"), True),
        (failed(0), failed(1, direction="backward"), False),
        (failed(0), failed(1, STEPS), False),
        (failed(0), failed(1, reason="dtype float16, expected float32"), False),
        (failed(0, kind="crash", reason="the process died by SIGSEGV"), failed(1), False),
    ],
)
def test_what_is_alike(one: Result, other: Result, alike: bool) -> None:
    assert (group_of(one) == group_of(other)) is alike


def test_the_first_is_the_first_call_whatever_ends_first() -> None:
    found = [
        failed(2, STEPS, direction="backward", place=2),
        failed(0, STEPS, direction="backward", place=0),
        failed(1, STEPS, place=1, line=7),
    ]
    assert {tuple(lines(*each)) for each in permutations(found)} == {
        (f"3 errors: looks like {STEPS}, Functional.linear, first at models.py:7 (record linear.1.forward)",)
    }
    backward = lines(*found[:2])
    assert backward == [f"2 errors: looks like {STEPS}, Functional.linear, first in record linear.2.backward"]


def test_of_several_dumps_each_is_named() -> None:
    one = failed(0, STEPS, line=7)
    other = replace(one, id="step1/dump.json::Functional.linear.0.forward")
    assert lines(other, one) == [
        f"2 errors: looks like {STEPS}, Functional.linear, first at models.py:7 (record linear.0.forward of dump.json)"
    ]
    rank = replace(one, id="rank1/dump.json::Functional.linear.0.forward")
    assert lines(rank) == [
        f"1 error: looks like {STEPS}, Functional.linear, at models.py:7 (record linear.0.forward of rank1/dump.json)"
    ]
    first, second = map(GroupMember.of, (one, other))
    assert second.line(first).startswith("step1/dump.json::linear.0.forward  models.py:7  noise ratio 512")
    assert first.line(first).startswith("linear.0.forward  models.py:7  noise ratio 512")


def test_of_an_error_without_a_cause_the_first_reason_is_shown() -> None:
    assert lines(failed(0, reason="noise ratio 512 (limit 64)")) == [
        "1 error: noise ratio 512 (limit 64), Functional.linear, in record linear.0.forward"
    ]
    crashed = failed(0, kind="crash", reason="the process died by SIGSEGV while the device ran it")
    assert lines(crashed) == [
        "1 error: the process died by SIGSEGV while the device ran it, Functional.linear, in record linear.0.forward"
    ]


def test_no_more_than_twenty_groups_are_listed() -> None:
    found = lines(*(failed(0, STEPS, api=f"Torch.op{number:02}") for number in range(MAX_GROUPS + 3)))
    assert len(found) == MAX_GROUPS + 1
    assert found[-1] == "3 errors in 3 other groups"
    assert lines(*(failed(0, STEPS, api=f"Torch.op{number:02}") for number in range(MAX_GROUPS))) == found[:-1]
