from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.export.details import read_rows
from pytest_probe.export.files import write_files
from pytest_probe.reports.results_file import RESULTS, RUN
from pytest_probe.reports.selected import SelectedItem, ids_in, is_of_test, selected_in, write_items
from tests.export.test_checker import outcome, output
from tests.support import made_results

MEASURES = {"count": 6, "cosine_distance": 0.25, "max_abs_error": 0.5, "rmse": "nan", "max_rel_error": 2.0**-20}


def folder_of(folder: Path, *outcomes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / RESULTS).write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in outcomes))
    names = dict.fromkeys(id.rpartition("::")[0] if is_of_test(id) else id for id in ids_in(folder / RESULTS))
    write_items(folder, [SelectedItem(name, place, name) for place, name in enumerate(names)])
    (folder / RUN).write_bytes(msgspec.json.encode({**made_results.RUN, "selected": selected_in(folder)}))
    return folder


def test_rows_of_a_folder_of_results_are_read(tmp_path: Path) -> None:
    found = read_rows(
        folder_of(
            tmp_path,
            outcome(
                "Torch.linalg.norm.3.forward[bfloat16]",
                "error",
                output(measures=MEASURES),
                output(),
                api="Torch.linalg.norm",
            ),
            outcome("Torch.add.0.backward", "skip"),
            outcome("(damaged)", "error", api=""),
        )
    )
    assert list(found) == [
        "Torch.linalg.norm.3.forward.output.0", "Torch.linalg.norm.3.forward.output.1", "Torch.add.0.backward.output.0"
    ]  # fmt: skip
    first, _, skipped = found.values()
    assert (first.call, first.api, first.direction) == ("Torch.linalg.norm.3", "Torch.linalg.norm", "forward")
    assert (first.dtype, first.status, first.measures.count, first.measures.max_abs_error) == (
        "float32",
        "pass",
        6,
        0.5,
    )
    assert first.measures.rmse is not None
    assert math.isnan(first.measures.rmse)
    assert (skipped.dtype, skipped.status, skipped.reason) == ("", "SKIP", "why")


def test_a_check_has_the_api_that_it_was_given(tmp_path: Path) -> None:
    made = outcome("test_mine[64]::my_linear.0.forward", "pass", output(), label="test_a.py", api="Functional.linear")
    (row,) = read_rows(folder_of(tmp_path, made)).values()
    assert (row.key, row.api) == ("test_mine[64]::my_linear.0.forward.output.0", "Functional.linear")


def test_several_dtypes_are_told_apart(tmp_path: Path) -> None:
    both = [outcome(f"Torch.add.0.forward{dtype}", "pass", output()) for dtype in ("", "[bfloat16]")]
    only = outcome("Torch.mul.0.forward[bfloat16]", "pass", output())
    assert list(read_rows(folder_of(tmp_path, *both, only))) == [
        "Torch.add.0.forward.output.0",
        "Torch.add.0.forward[bfloat16].output.0",
        "Torch.mul.0.forward.output.0",
    ]


def test_several_dumps_are_told_apart(tmp_path: Path) -> None:
    made = [outcome("Torch.add.0.forward", "pass", output(), label=label) for label in ("rank0/d.json", "rank1/d.json")]
    assert list(read_rows(folder_of(tmp_path, *made))) == [
        f"rank{rank}/d.json::Torch.add.0.forward.output.0" for rank in (0, 1)
    ]


def test_a_details_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder_of(tmp_path, outcome("Functional.relu.0.forward", "warning", output(measures=MEASURES)))
    direct = read_rows(tmp_path)
    _, details, _ = write_files(tmp_path, {"mode": ["acc"], "listen": None, "relations": []})
    (row,) = read_rows(details).values()
    (same,) = direct.values()
    assert (row.key, row.entry, row.dtype, row.status) == (same.key, same.entry, same.dtype, same.status)
    assert (row.measures.count, row.measures.cosine_distance, row.measures.max_abs_error) == (6, 0.25, 0.5)
    assert row.measures.max_rel_error == pytest.approx(2.0**-20, abs=1e-14)
    assert row.measures.ulp_max is None


@pytest.mark.parametrize(
    ("name", "text", "trouble"),
    [
        ("a.csv", "API Name,Shape\nx,()\n", "it has no column DEVICE Dtype"),
        ("b.csv", "\xff\xfe", "it has no column API Name"),
        ("none", "", "it cannot be read: .*No such file"),
    ],
)
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, name: str, text: str, trouble: str) -> None:
    if text:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=trouble):
        read_rows(tmp_path / name)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="it holds 0 details files and no results"):
        read_rows(tmp_path)


def test_results_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_bytes(b"{]\n")
    (tmp_path / RUN).write_text("{}")
    with pytest.raises(SettingsError, match="does not write this"):
        read_rows(tmp_path)
