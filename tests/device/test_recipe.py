"""The recipe for a new backend, with a backend."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.device.conftest import ROOT
from tests.support.pages import blocks


def test_the_recipe_for_a_backend_runs(
    pytester: pytest.Pytester, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = [block for block in blocks("docs/testing-kernels.md") if block.name == "conftest.py"]
    pytester.makeconftest(recipe.text)
    shutil.copytree(ROOT / "cases" / "gpt", pytester.path / "gpt")
    monkeypatch.setenv("MYDEVICE_LIBRARY", str(library))
    result = pytester.runpytest_subprocess(
        "--probe-dump=gpt", "--probe-device=mydevice", "--probe-api=Functional.gelu", "--probe-api=Functional.linear"
    )
    result.stdout.fnmatch_lines(["probe: mydevice*"])
    result.assert_outcomes(passed=result.parseoutcomes()["passed"])
