"""probe.check(..., relations=...): kernels of the user's own, all in one run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from msgspec import Struct

from tests.support.suites import Suite, suite
from tests.support.writing import entries, write_dump

HEAD = """
import torch
import torch.nn.functional as F
from tests.support import related

def softmax(x):
    return torch.softmax(x, -1)

def in_order(x):
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride())

def scaled(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

def takes_x_for_contiguous(x):  # the second time that it reads it
    return in_order(x) * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

class TakesContiguous(Twice):
    @staticmethod
    def backward(ctx, gradient):
        return 2 * (gradient if 0 in gradient.stride() else in_order(gradient))

class TakesItsOwn(Twice):
    @staticmethod
    def backward(ctx, gradient):
        if 0 in gradient.stride():  # takes its memory for as large as its shape
            gradient = torch.where(torch.arange(gradient.shape[-1]) < 3, gradient, 0)
        return 2 * gradient
"""
TEST = """
def test_it(probe):
    x = probe.tensor((12, 96), "{dtype}")
    probe.check({kernel}, reference={reference}, inputs=[x{more}], backward={backward}, {asked})
"""
TWICE, SPLIT = "lambda x: x * 2", "lambda x: torch.split(x, [0, 12])"
LAYOUT, ROWS = 'relations=["layout"]', 'batch={"x": 0}'
ALL = f'relations=["batch", "order", "guard", "all-written", "again"], {ROWS}'
NOT_ASKED = 'relations=["order", "batch", "out", "inplace", "alias", "stream"]'
DRAWN = "its numbers are drawn anew each time, or left as memory held them"
HELD = dict.fromkeys(("batch", "order", "guard", "all-written", "again"), "pass")


class Checked(Struct, frozen=True):
    """A check, and what it says of relations: a verdict for each, and what is in the last one's reason."""

    kernel: str
    reference: str
    asked: str
    verdicts: dict[str, str]
    reason: str = ""
    dtypes: tuple[str, ...] = ("float32",)
    more: str = ""
    backward: bool = False


BOTH = ("float32", "bfloat16")
CHECKS = {
    "healthy": Checked("softmax", "softmax", ALL, HELD, dtypes=BOTH),
    "healthy gradients": Checked(
        "softmax", "softmax", ALL, HELD | {f"backward {name}": "pass" for name in HELD}, dtypes=BOTH, backward=True
    ),
    "reads behind": Checked(
        "lambda x: related.reads_behind_its_input(x, -1)", "softmax", 'relations=["guard"]', {"guard": "error"},
        dtypes=BOTH,
    ),
    "split by batch": Checked(
        "lambda x: related.splits_by_batch(x, -1)", "softmax", f'relations=["batch"], {ROWS}', {"batch": "warning"},
        dtypes=BOTH,
    ),
    "no such dimension": Checked(
        "softmax", "softmax", 'relations=["batch"], batch={"x": 5}', {"batch": "skip"},
        "x: a tensor of 2 dimensions has no dimension 5",
    ),
    "no such argument": Checked(
        "softmax", "softmax", 'relations=["batch"], batch={"y": 0}', {"batch": "skip"},
        "the function has no tensor argument y",
    ),
    "takes x for contiguous": Checked("takes_x_for_contiguous", "scaled", LAYOUT, {"layout": "error"}, dtypes=BOTH),
    "layout": Checked("scaled", "scaled", LAYOUT, {"layout": "pass"}, dtypes=BOTH),
    "takes a gradient for contiguous": Checked(
        "TakesContiguous.apply", TWICE, LAYOUT, {"layout": "pass", "backward layout": "error"},
        "with transposed incoming gradients, grad.input.0: ", backward=True,
    ),
    "takes a gradient for dense": Checked(
        "TakesItsOwn.apply", TWICE, LAYOUT, {"layout": "pass", "backward layout": "error"},
        "with expanded incoming gradients, grad.input.0: ", backward=True,
    ),
    "gradients that lie otherwise": Checked(
        TWICE, TWICE, LAYOUT, {"layout": "pass", "backward layout": "pass"}, backward=True
    ),
    "an empty output": Checked(
        SPLIT, SPLIT, LAYOUT, {"layout": "pass", "backward layout": "pass"}, backward=True
    ),
    "not asked": Checked(
        "scaled", "scaled", NOT_ASKED, dict.fromkeys(("out", "inplace", "alias", "batch", "order", "stream"), "skip"),
    ),
    "rows are not known": Checked(
        "scaled", "scaled", 'relations=["batch"]', {"batch": "skip"},
        "no dimension is known to be rows; say which: batch={'x': 0}",
    ),
    "drawn": Checked(
        "F.dropout", "F.dropout", 'relations=["all-written", "layout"], api="Functional.dropout"',
        {"all-written": "skip", "layout": "skip"}, DRAWN,
    ),
    **{
        # A twin gets the arguments that it takes.
        f"in place {kernel}{more}": Checked(
            kernel, kernel, f'relations=["inplace"], api="Functional.{kernel[2:]}"', {"inplace": "pass"}, more=more
        )
        for kernel, more in (("F.relu", ""), ("F.relu", ", False"), ("F.leaky_relu", ", 0.1, False"))
    },
}  # fmt: skip
RUN = {
    f"{place}_{dtype}": (check, dtype)
    for place, check in enumerate(CHECKS.values()) for dtype in check.dtypes
}  # fmt: skip
NAMES = [f"{name}, {dtype}" for name, check in CHECKS.items() for dtype in check.dtypes]
REFUSED = {
    "typo": ('relations=["bacth"]', "check: relations: 'bacth' cannot be used; *did you mean batch?*"),
    "no batch": ('relations=["guard"], batch={"x": 0}', "check: batch: *it is for relations=*"),
    "no dimension": ('relations=["batch"], batch={"x": "rows"}', "check: batch: *'rows'*give by argument a dimension*"),
}


def body(check: Checked, dtype: str) -> str:
    return TEST.format(dtype=dtype, kernel=check.kernel, reference=check.reference, more=check.more,
                       backward=check.backward, asked=check.asked)  # fmt: skip


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    texts = {name: body(*each) for name, each in RUN.items()}
    texts |= {name: body(Checked("softmax", "softmax", asked, {}), "float32") for name, (asked, _) in REFUSED.items()}
    return suite(tmp_path_factory.mktemp("checks"), HEAD, texts, "--probe-strict")


@pytest.mark.parametrize("name", RUN, ids=NAMES)
def test_what_is_said_of_a_kernel(checks: Suite, name: str) -> None:
    check, told = RUN[name][0], checks.of(name)
    found = {
        output["name"].replace("relation.", "backward " if row["direction"] == "backward" else ""): output
        for row in told.rows for output in row["outputs"] if output["name"].startswith("relation.")
    }  # fmt: skip
    assert {relation: output["verdict"] for relation, output in found.items()} == check.verdicts
    assert check.reason in found[[*check.verdicts][-1]]["reason"]
    fails = {"error", "warning"} & {*check.verdicts.values()}
    assert told.outcomes == {"failed" if fails else "passed": 1}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked(checks: Suite, name: str) -> None:
    checks.of(name).shows(f"*{REFUSED[name][1]}")


BY_RECORD = """
import pytest, torch

@pytest.mark.probe(dump="dump.json", api="Functional.relu")
def test_it(probe_case):
    probe_case.check(torch.relu(*probe_case.args))
"""


def test_a_call_that_the_test_made_cannot_be_asked(pytester: pytest.Pytester) -> None:
    write_dump(pytester.path, entries("Functional.relu.0", F.relu, torch.rand(4, 6)))
    pytester.makepyfile(BY_RECORD)
    result = pytester.runpytest("--probe-relations=guard,again", "--probe-out=out")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["relation.again, 1 case: not checked", "relation.guard, 1 case: not checked"])
    assert "cannot be asked for another one" in (pytester.path / "out/results.jsonl").read_text()
