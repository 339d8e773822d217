"""A suite fails as it does without --probe-asserts, in the same words; a section stands behind them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from xml.etree import ElementTree

import pytest

from tests.features.asserts.suites import KERNEL, SUITES
from tests.support.running import refusal

# What begins behind a section; and what differs between two runs, times and addresses.
_NEXT = re.compile(r"(___|---|===|/)")
_CHANGES = re.compile(r"^=+ | in [0-9.]+s\b.*=+$|0x[0-9a-f]+")


def without_sections(lines: Iterable[str]) -> list[str]:
    found, inside = [], False
    for line in lines:
        if re.fullmatch(r"-+ probe -+", line):
            inside = True
        elif inside and _NEXT.match(line):
            inside = False
        if not inside:
            found.append(_CHANGES.sub("", line))
    return found


WAYS = "--probe-asserts", "--probe-asserts=all"
SAID_OF_ODD = (
    "the shapes differ: nothing more is compared",
    "the difference cannot be explained: Unsupported: a tensor of layout torch.sparse_coo",
    "all numbers are equal: dtypes, shapes, devices or layouts differ",
    "NaN: 16 on both sides, equal with equal_nan=True alone",
    "looks like: NaN where numbers are expected",
)


def lines_of(pytester: pytest.Pytester, *options: str) -> list[str]:
    return pytester.runpytest("-p", "no:cacheprovider", *options).outlines


@pytest.mark.parametrize(("style", "ways"), [("auto", WAYS), ("no", WAYS[:1])])
def test_suites_say_the_same(pytester: pytest.Pytester, style: str, ways: tuple[str, ...]) -> None:
    pytester.makepyfile(**{f"test_{name}": text for name, text in SUITES.items() if style == "auto" or name == "layer"})
    plain = lines_of(pytester, f"--tb={style}")
    for way in ways:
        found = lines_of(pytester, f"--tb={style}", way)
        assert not [line for line in found if "measured" in line]
        if way.endswith("all"):
            begin = next(index for index, line in enumerate(found) if "= probe: asserts =" in line)
            end = next(index for index in range(begin + 1, len(found)) if found[index].startswith("==="))
            del found[begin:end]
        assert without_sections(found) == without_sections(plain)
        explained = [line for line in found if "looks like: " in line]
        assert bool(explained) == (style != "no")
        text = "\n".join(found)
        assert "INTERNALERROR" not in text
        assert all(words in text for words in SAID_OF_ODD) or style == "no"


def test_workers_send_sections_and_junit_has_them(pytester: pytest.Pytester) -> None:
    """The key of the ini asks for them."""
    pytester.makepyfile(KERNEL)
    pytester.makeini("[pytest]\nprobe_asserts = true\n")
    lines = lines_of(pytester, "-n2", "--junitxml=junit.xml")
    assert sum(line.startswith("  looks like: zeros, as memory that ") for line in lines) == 2
    failures = [failure.text or "" for failure in ElementTree.parse("junit.xml").iter("failure")]
    assert len(failures) == 2
    assert all("looks like: zeros" in text and "where: last 3 of dim 0" in text for text in failures)


def test_what_does_not_ask_for_them_is_refused(pytester: pytest.Pytester) -> None:
    refusal(pytester, "--probe-asserts=none").fnmatch_lines(["*--probe-asserts*'none'*"])
    pytester.makeini("[pytest]\nprobe_asserts = perhaps\n")
    refusal(pytester).fnmatch_lines(["*probe_asserts*'perhaps'*give true or false*"])


NOTHING = """
    import sys

    def test_nothing():
        heavy = "numpy torch msgspec ml_dtypes yaml hypothesis pytest_probe.settings pytest_probe.plugin.items"
        assert not {*heavy.split()} & set(sys.modules)
        assert "pytest_probe.features.asserts.plugin" in sys.modules

    def test_fails():
        assert 1 == 2

    def test_of_another_failure():
        assert "numpy" not in sys.modules
"""


def test_a_suite_without_arrays_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(NOTHING)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_probe.plugin", "--probe-asserts"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert "1 failed, 2 passed" in done.stdout
