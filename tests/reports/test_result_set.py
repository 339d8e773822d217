"""The folder of another run, and the cases that a run is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.reports.result_set import ResultSet, RunFolder
from pytest_probe.reports.results_file import refused
from tests.support.made_results import made_result, write_run

CASE = "dump.json::Torch.exp.0.forward"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([CASE, f"{CASE}[bfloat16]"], f"{CASE}[bfloat16]"),
        ([f"{CASE}[float16]", CASE], CASE),
        ([f"{CASE}[float16]", f"{CASE}[float64]"], f"{CASE}[float16]"),
        (["dump.json::Torch.exp.1.forward"], None),
        ([f"{CASE}[inductor]"], None),
    ],
)
def test_a_benchmark_has_a_case_in_its_own_dtype_as_recorded_or_in_the_first(
    there: list[str], expected: str | None
) -> None:
    found = ResultSet("benchmark", "base", {id: id for id in there})
    assert found.id_of(f"{CASE}[bfloat16]") == found.get(f"{CASE}[bfloat16]") == expected
    own = f"{CASE}[bfloat16]" if f"{CASE}[bfloat16]" in there else None
    assert ResultSet("baseline", "base", {id: id for id in there}).get(f"{CASE}[bfloat16]") == own


def test_a_run_json_that_is_not_ours_names_what_is_wrong(tmp_path: Path) -> None:
    folder = write_run(tmp_path, iter([made_result(0, details=False)]), seed="x")
    with pytest.raises(SettingsError, match=r"its run\.json is none of pytest-probe's: Expected `int`, got `str`"):
        RunFolder.read("DIR", folder, "it cannot be read")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(2, "No such file", "a{b}.json"), "DIR: 'x' cannot be used; No such file: a{b}.json"),
        (ResultsError("a{b}.json", "{error}"), "DIR: 'x' cannot be used; {error}, found"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_own_words(error: Exception, words: str) -> None:
    with (
        pytest.raises(SettingsError) as found,
        refused("DIR", "x", "{error.strerror}: {error.filename}", "{error.found}, found"),
    ):
        raise error
    assert str(found.value) == words
