"""What a capture is told: files as msprobe's, arguments, and errors that say what would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.recording.config import configured

# As msprobe 26.2.0 ships it, and what 1.2.2's has besides.
SHIPPED: dict[str, Any] = {
    "task": "statistics",
    "dump_path": "./dump_path",
    "rank": [],
    "step": [],
    "level": "L1",
    "extra_info": True,
    "async_dump": False,
    "enable_dataloader": False,
    "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    "tensor": {"scope": [], "list": [], "data_mode": ["all"], "file_format": "npy"},
    "overflow_check": {"overflow_nums": 1, "check_mode": "all"},
    "acc_check": {"white_list": [], "black_list": [], "error_data_path": "./"},
    "run_ut": {"white_list": [], "black_list": [], "error_data_path": "./"},
    "grad_probe": {"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]},
    "free_benchmark": {"scope": [], "fuzz_device": "npu"},
}


def written(folder: Path, **content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_msprobes_own_file_is_read(tmp_path: Path) -> None:
    config = configured(written(tmp_path, **SHIPPED))
    assert (config.dump_path, config.task, config.level, config.stacks) == ("./dump_path", "statistics", "L1", True)
    assert config.modes == {"forward", "backward", "input", "output"}


def test_the_section_of_the_task_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        task="tensor",
        dump_path="d",
        tensor={"list": ["relu"], "data_mode": ["forward"]},
        statistics={"list": ["conv"], "summary_mode": "md5"},
        run_ut={"black_list": ["softmax"]},
    )
    config = configured(path)
    assert (config.names, config.summary, config.black) == (("relu",), "statistics", ("softmax",))
    assert config.modes == {"forward", "input", "output"}


def test_arguments_count_more_than_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, **SHIPPED)
    config = configured(path, task="tensor", step=[1, "4-6"], scope=["Torch.a.0.forward", "Torch.b.0.forward"])
    assert (config.task, config.steps, config.scope[0]) == ("tensor", frozenset({1, 4, 5, 6}), "Torch.a.0.forward")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"tasks": "tensor"}, ["tasks", "no key", "'task'"]),
        ({"task": "tensors"}, ["tensors", "statistics, tensor, structure, overflow_check"]),
        ({"level": "L2"}, ["level", "L2", "L0, L1, mix"]),
        ({"step": ["6-4"]}, ["step", "6-4"]),
        ({"step": 3}, ["step", "list"]),
        ({"rank": [-1]}, ["rank", "-1"]),
        ({"statistics": {"scope": ["one"]}}, ["scope", "first and the last"]),
        ({"statistics": {"data_modes": []}}, ["statistics", "data_modes", "'data_mode'"]),
        ({"statistics": {"data_mode": ["up"]}}, ["data_mode", "up", "forward, backward, input, output"]),
        ({"statistics": ["all"]}, ["statistics", "an object"]),
        ({"extra_info": "yes"}, ["extra_info", "true or false"]),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 0}}, ["overflow_nums", "-1"]),
        ({"task": "overflow_check", "level": "L0"}, ["level", "L1"]),
    ],
)
def test_what_cannot_be_used_is_named(content: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        configured(written(tmp_path, dump_path="d", **content))
    for word in [*words, "config.json"]:
        assert word in str(error.value) or (word == "config.json" and "PrecisionDebugger" in str(error.value))


@pytest.mark.parametrize("text", ["{", "[]", '"a"'])
def test_a_file_that_is_no_configuration_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="JSON object"):
        configured(path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        configured(tmp_path / "none.json")
    with pytest.raises(SettingsError, match="dump_path"):
        configured(None)
