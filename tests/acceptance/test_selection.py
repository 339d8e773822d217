from __future__ import annotations

import pytest

from pytest_probe.frameworks import signatures
from pytest_probe.model.dump import Record
from pytest_probe.selection import Selection

LINEAR = Record("Functional.linear.0", "Functional", "linear", 0, b"", b"")
NORM = Record("Torch.linalg.norm.12", "Torch", "linalg.norm", 12, b"")


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("torch.nn.functional.linear", "Functional.linear"),
        ("torch.Tensor.add_", "Tensor.add_"),
        ("torch.linalg.norm", "Torch.linalg.norm"),
        ("torch_npu.npu_rms_norm", "NPU.npu_rms_norm"),
        ("Functional.*", "Functional.*"),
    ],
)
def test_a_pattern_matches_other_spellings_of_an_api(glob: str, expected: str) -> None:
    assert signatures().spelled(glob) == expected


@pytest.mark.parametrize("glob", ["linear", "Functional.lin*", "Functional.linear.0", "Functional.linear.0.forward"])
def test_globs_match_api_call_and_entry(glob: str) -> None:
    assert Selection(apis=(glob,)).admits(LINEAR, "forward")
    assert not Selection(apis=(glob,)).admits(NORM, "forward")
    assert not Selection(skip_apis=(glob,)).admits(LINEAR, "forward")
    assert Selection(skip_apis=(glob,)).admits(NORM, "forward")


def test_skip_wins_and_case_counts() -> None:
    assert not Selection(apis=("linear",), skip_apis=("Functional.*",)).admits(LINEAR, "forward")
    assert not Selection(apis=("functional.linear",)).admits(LINEAR, "forward")


def test_an_entry_name_selects_its_direction() -> None:
    selection = Selection(apis=("Functional.linear.0.backward",))
    assert [selection.admits(LINEAR, direction) for direction in LINEAR.directions] == [False, True]


def test_lists_of_msprobe_hold_names_without_namespace() -> None:
    assert Selection(white_list=("linear",)).admits(LINEAR, "forward")
    assert not Selection(white_list=("linear",)).admits(NORM, "forward")
    assert not Selection(white_list=("linear",), black_list=("linear",)).admits(LINEAR, "forward")
    assert not Selection(white_list=("linear",), apis=("Torch.*",)).admits(LINEAR, "forward")
