from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from pytest_probe import capture
from pytest_probe.errors import OverflowFound, SettingsError
from pytest_probe.paddle import Tracer


def written(folder: Path, **keys: Any) -> Path:
    """A configuration, which writes into the folder."""
    path = folder / "tool_config.yaml"
    path.write_text(json.dumps({"dump_root_path": str(folder / "dumps"), "dump_unique": False} | keys))
    return path


def targets(folder: Path, content: str) -> str:
    path = folder / "op_target.yaml"
    path.write_text(content)
    return str(path)


def entries(folder: Path, step: int = 0, part: str = "all") -> dict[str, Any]:
    path = folder / f"dumps/rank0_step{step}/forward_rank0_{part}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@contextmanager
def tracing(config: Path) -> Iterator[None]:
    tracer = Tracer(config)
    tracer.start()
    yield
    tracer.stop()


def traced(config: Path, steps: int = 1) -> None:
    tracer = Tracer(config)
    for _ in range(steps):
        tracer.start()
        x = paddle.to_tensor([1.5, -3.0])
        x.stop_gradient = False
        (paddle.exp(x) + 1.0).sum().backward()
        tracer.stop()


def test_the_tracer_writes_entries_as_paddleapex_does(tmp_path: Path) -> None:
    traced(written(tmp_path))
    found = entries(tmp_path)
    assert list(found) == ["paddle.to_tensor*0", "paddle.exp*0", "paddle.Tensor.__add__*0", "paddle.sum*0"]
    tensor = {"type": "paddle.Tensor", "dtype": "FLOAT32", "shape": [2], "Max": 1.5, "Max_origin": 1.5, "Min": -3.0}
    tensor |= {"Min_origin": -3.0, "stop_gradient": False}
    assert found["paddle.exp*0"]["args"] == [tensor]
    assert found["paddle.Tensor.__add__*0"]["args"][1] == {"type": "float", "value": 1.0}
    assert [each["Max"] for each in found["paddle.exp*0"]["dout_list"]] == [1.0]
    assert found["paddle.to_tensor*0"]["dout_list"] == ["Failed"]
    assert entries(tmp_path, part="other") == found
    assert entries(tmp_path, part="half") == {}


def test_tensors_are_numbered_with_the_values_between_them(tmp_path: Path) -> None:
    config = written(tmp_path, dump_mode="real_data")
    with tracing(config):
        x = paddle.ones([3, 4])
        x.stop_gradient = False
        paddle.nn.functional.linear(x, paddle.ones([4, 2]), None, name=None).sum().backward()
    entry = entries(tmp_path)["paddle.nn.functional.linear*0"]
    names = [entry["args"][0], entry["args"][1], entry["dout_list"][0]]
    assert [tensor["real_data_path"] for tensor in names] == [
        f"paddle.nn.functional.linear*0.{slot}.pt" for slot in (0, 1, 4)
    ]
    file = tmp_path / "dumps/rank0_step0/paddle.nn.functional.linear*0.4.pt"
    assert paddle.load(str(file)).tolist() == [[1.0, 1.0]] * 3


def test_what_paddleapex_could_not_run_is_left_out(tmp_path: Path) -> None:
    with tracing(written(tmp_path)):
        x = paddle.ones([2, 2])
        x[..., 0]
        x[0]
        x[0] = 2.0
        paddle._C_ops.sgd_(x, paddle.ones([1]), x, None, False)
    names = ["paddle.ones*0", "paddle.Tensor.__getitem__*1", "paddle.Tensor.__setitem__*0", "paddle.ones*1"]
    assert list(entries(tmp_path)) == names


def test_the_tracer_writes_a_folder_for_each_target_step(tmp_path: Path) -> None:
    traced(written(tmp_path, target_step=[1, 3]), steps=5)
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == ["rank0_step1", "rank0_step3"]


def test_start_twice_ends_the_step_before(tmp_path: Path) -> None:
    tracer = Tracer(written(tmp_path, target_step=[0, 1]))
    for _ in range(2):
        tracer.start()
        paddle.ones([2])
    tracer.stop()
    assert [list(entries(tmp_path, step)) for step in (0, 1)] == [["paddle.ones*0"]] * 2


def test_equal_calls_are_written_once_with_rounded_ranges(tmp_path: Path) -> None:
    with tracing(written(tmp_path, dump_unique=True)):
        for value in (2.0, 30.0, 3.0, -0.5, 0.0, float("nan")):
            paddle.sign(paddle.to_tensor(value))
    found = {key: entry["args"][0]["Max"] for key, entry in entries(tmp_path).items() if key.startswith("paddle.sign")}
    assert str(found) == str(
        dict(zip([f"paddle.sign*{number}" for number in range(5)], (10, 100, -0.1, 0, float("nan")), strict=True))
    )


def test_calls_in_16_bit_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    with tracing(written(tmp_path)):
        paddle.ones([2], "bfloat16").astype("float32").abs()
    assert list(entries(tmp_path, part="half")) == ["paddle.ones*0", "paddle.Tensor.astype*0"]
    assert list(entries(tmp_path, part="other")) == ["paddle.abs*0"]
    assert entries(tmp_path)["paddle.ones*0"]["args"][1] == "paddle.bfloat16"


@pytest.mark.parametrize("key", ["target_op", "target op"])
def test_only_targets_are_recorded_also_inside_others(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type(sys)("fused_of_ours")
    module.double = lambda x: x * 2.0  # type: ignore[attr-defined]
    module.same = module.double  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fused_of_ours", module)
    names = ["paddle._C_ops.softmax", "fused_of_ours.double", "paddle.Tensor.__mul__", "paddle.linalg"]
    names += ["paddle.Tensor.strides", "paddle.nothing", "paddle.exp"]
    listed = targets(tmp_path, f"ignored_op: [paddle.exp]\n{key}: {json.dumps(names)}")
    caplog.set_level(logging.WARNING)
    with tracing(written(tmp_path, op_target_path=listed)):
        paddle.nn.functional.softmax(module.same(paddle.ones([2])))
        paddle.exp(paddle.ones([2])) * 3.0
    assert list(entries(tmp_path)) == ["fused_of_ours.double*0", "paddle._C_ops.softmax*0", "paddle.Tensor.__mul__*0"]
    (message,) = [record.getMessage() for record in caplog.records if "not recorded" in record.getMessage()]
    assert "paddle.linalg (a module), paddle.Tensor.strides (no function), paddle.nothing (missing)" in message


def test_a_variable_names_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APEX_CONFIG_PATH", str(written(tmp_path)))
    tracer = Tracer()
    tracer.start()
    paddle.ones([2])
    tracer.stop()
    assert list(entries(tmp_path)) == ["paddle.ones*0"]


def test_the_tracer_copies_its_files_to_the_remote_path(tmp_path: Path) -> None:
    traced(written(tmp_path, Async_dump=True, remote_path=str(tmp_path / "far")))
    name = "rank0_step0/forward_rank0_all.json"
    assert (tmp_path / "far" / name).read_text() == (tmp_path / "dumps" / name).read_text()


def test_a_copy_that_fails_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "far").write_text("a file")
    traced(written(tmp_path, Async_dump=True, remote_path=str(tmp_path / "far")))
    assert len(entries(tmp_path)) == 4
    assert any("is not copied" in record.getMessage() for record in caplog.records)


def test_a_capture_in_the_layout_of_paddleapex_writes_its_files(tmp_path: Path) -> None:
    def run(**options: Any) -> None:
        with capture(tmp_path / "dumps", framework="paddle", layout="paddleapex", **options):
            paddle.log(paddle.zeros([2]))

    run()
    assert list(entries(tmp_path)) == ["paddle.zeros*0", "paddle.log*0"]
    with pytest.raises(OverflowFound, match=r"rank0_step0/forward_rank0_all\.json"):
        run(task="overflow_check", overwrite=True)
    assert list(entries(tmp_path)) == ["paddle.log*0"]
    with pytest.raises(SettingsError, match="PaddleAPEX's files hold API calls only"):
        run(level="L0", model=paddle.nn.ReLU())


def test_a_second_one_while_one_runs(tmp_path: Path) -> None:
    tracer = Tracer(written(tmp_path))
    other = Tracer(written(tmp_path))
    tracer.start()
    with pytest.raises(SettingsError, match="a second one"):
        Tracer(written(tmp_path))
    with pytest.raises(SettingsError, match="a second one"):
        other.start()
    tracer.stop()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"target_steps": [0]}, "unknown key 'target_steps'; did you mean 'target_step'?"),
        ({"target_step": "0"}, r"target_step: '0' cannot be used; give a list of numbers"),
        ({"target_step": [0, -1]}, r"target_step: -1 cannot be used; give a list of numbers|target_step"),
        ({"target_step": []}, r"target_step: \[\] cannot be used"),
        ({"dump_mode": "real"}, r"dump_mode: 'real' cannot be used; give one of random, real_data"),
        ({"dump_unique": "yes"}, r"dump_unique: 'yes' cannot be used; give true or false"),
        ({"op_target_path": "/nowhere.yaml"}, r"/nowhere.yaml: 'No such file or directory'"),
        ({"dump_root_path": "/proc/nothing"}, r"dump_root_path: '/proc/nothing' cannot be used; it cannot be made"),
    ],
)
def test_what_cannot_be_used_is_said_when_it_is_made(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        Tracer(written(tmp_path, **keys))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "give a YAML file"),
        ("- 3", "give a mapping"),
        ("target_ops: [paddle.add]", "did you mean 'target_op'"),
        ("target_op: paddle.add", "give a list of functions"),
    ],
)
def test_a_list_of_functions_that_cannot_be_used(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        Tracer(written(tmp_path, op_target_path=targets(tmp_path, content)))
