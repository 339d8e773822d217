"""A junit file made of results, with the names that pytest's own has for the same items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.reports.junit import properties
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable

# The node id of an item, and a result of it.
Named: TypeAlias = tuple[str, Result]


def write_junit(path: Path, results: Iterable[Named], *, strict: bool) -> None:
    """One testcase an item, whose results stand beside one another; of several the worst is shown. strict: warnings
    fail. Raises OSError."""
    suite = ElementTree.Element("testsuite", name="pytest")
    counts = {"errors": 0, "failures": 0, "skipped": 0, "tests": 0}
    total = 0.0
    for node, found in groupby(results, key=lambda pair: pair[0]):
        each = [result for _, result in found]
        worst = max(each, key=lambda result: SEVERITY[result.verdict])
        outcome = _add(suite, node, worst, each, strict=strict)
        counts["tests"] += 1
        if outcome:
            counts[outcome] += 1
        total += worst.duration
    suite.attrib |= {name: str(number) for name, number in counts.items()} | {"time": f"{total:.3f}"}
    suites = ElementTree.Element("testsuites", name="pytest tests")
    suites.append(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        ElementTree.ElementTree(suites).write(temporary, encoding="utf-8", xml_declaration=True)


def _add(suite: ElementTree.Element, node: str, worst: Result, each: Sequence[Result], *, strict: bool) -> str:
    """What the item counts as beside the tests: "failures", "skipped" or ""."""
    classname, name = names(node)
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name, time=f"{worst.duration:.3f}")
    told = ElementTree.SubElement(case, "properties")
    for key, value in properties(worst):
        ElementTree.SubElement(told, "property", name=key, value=printable(str(value)))
    reason = printable(_reason(worst))
    if fails(worst, strict=strict):
        text = "\n".join(_reason(result) for result in each if fails(result, strict=strict))
        failure = ElementTree.SubElement(case, "failure", message=reason.partition("\n")[0])
        failure.text = printable(text)
        return "failures"
    if worst.verdict != "skip" and not _is_known(worst):
        return ""
    kind = "pytest.xfail" if _is_known(worst) else "pytest.skip"
    ElementTree.SubElement(case, "skipped", type=kind, message=reason)
    return "skipped"


def names(node: str) -> tuple[str, str]:
    """classname and name of an item, as pytest makes them of its node id."""
    path, bracket, parameters = node.partition("[")
    parts = path.split("::")
    parts[0] = parts[0].replace("/", ".").removesuffix(".py")
    return ".".join(parts[:-1]), parts[-1] + bracket + parameters


def fails(result: Result, *, strict: bool) -> bool:
    """Did its item fail, by the verdict or beside a baseline?"""
    if _is_known(result):
        return False
    worse = result.gate is not None and result.gate.change in ("worse", "bits")
    return worse or result.verdict == "error" or (strict and result.verdict == "warning")


def _is_known(result: Result) -> bool:
    return result.gate is not None and result.gate.change == "known"


def _reason(result: Result) -> str:
    outputs = [f"{output.name}: {output.reason}" for output in result.outputs if output.verdict == result.verdict]
    return result.reason or "\n".join(outputs) or result.verdict
