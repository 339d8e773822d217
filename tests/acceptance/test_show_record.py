"""`pytest-probe show DUMP RECORD`: one record in full, of every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, entries
from tests.support import scaled
from tests.support.dumps import TENSORS
from tests.support.dumps import unpack as unpack_msprobe
from tests.support.ptdbg_dumps import stack, unpack_checker, values, write
from tests.support.tensor_files import safetensors

X = np.array([[1.0, -2.0], [3.0, np.inf]], np.float32)


def shown(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


def described(capsys: pytest.CaptureFixture[str], *args: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shown(capsys, *args, "--json"))
    return found


def test_show_describes_a_record_of_ptdbg(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = {key: value for n in range(3) for key, value in values(f"Torch_f_{n}", [[X, 2], None, True], X).items()}
    frames = stack("Torch_f_1_forward", ("/lib/torch/x.py", 3, "g", "f()"), ("/me/train.py", 7, "step", "y = f(x)"))
    path = write(tmp_path, calls | {"Torch_f_1_backward_input.0": X}, frames)
    (path.with_suffix("") / "Torch_f_1_forward_output.npy").unlink()
    tensor = "float32[2, 2]  max inf  min -2.0  mean inf  norm inf  file Torch_f_1"
    assert shown(capsys, path, "Torch_f_1").splitlines() == [
        "dump.pkl: Torch.f.1 (pytorch, tensor)",
        "  called at /me/train.py:7 in step: y = f(x)",
        "  before: Torch.f.0",
        "  after: Torch.f.2",
        "  arguments:",
        f"    input.0.0  {tensor}_forward_input.0.0.npy",
        "    input.0.1  int            2",
        "    input.1    lost",
        "    input.2    bool           True",
        "  outputs:",
        f"    output.0  {tensor}_forward_output.npy (missing)",
        "  gradients:",
        f"    input.0  {tensor}_backward_input.0.npy",
        "  replay forward: skip: outside the allow-list: Torch.f: torch.f is not among what torch lists as public and "
        "overridable",
        "  note: only positional arguments were recorded: a replay runs with what gives the stored output, as they "
        "stand or with values for what is missing",
        "  note: the gradients are those of the last autograd node, which are compared and not replayed",
        "  stack, outermost first:",
        "    /me/train.py:7 in step",
        "      y = f(x)",
        "    /lib/torch/x.py:3 in g",
        "      f()",
    ]
    (found,) = described(capsys, path, "Torch.f.1")
    assert (found["before"], found["after"]) == (["Torch.f.0"], ["Torch.f.2"])
    assert found["called_from"] == {"file": "/me/train.py", "line": 7, "function": "step", "code": "y = f(x)"}
    assert found["arguments"][0] == {
        "name": "input.0.0",
        "type": "tensor",
        "dtype": "float32",
        "shape": [2, 2],
        "requires_grad": False,
        "max": "inf",
        "min": -2.0,
        "mean": "inf",
        "norm": "inf",
        "file": "Torch_f_1_forward_input.0.0.npy",
        "stored": True,
    }


def test_show_gives_a_checksum(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    data = entries()
    data["Functional.relu.0.forward"]["input_args"][0] |= {"md5": "2287403f"}
    path = make_dump(data=data)
    (found,) = described(capsys, path, "Functional.relu.0")
    assert [each.get("checksum") for each in (*found["arguments"], *found["outputs"])] == ["2287403f", None]
    assert "  checksum 2287403f" in shown(capsys, path, "Functional.relu.0")


def test_show_describes_what_is_compared_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step0.safetensors"
    path.write_bytes(safetensors(**{f"l.{layer}.mlp.{part}": X for layer in (0, 1) for part in ("input", "output")}))
    assert shown(capsys, path, "l.1.mlp").splitlines() == [
        "step0.safetensors: l.1.mlp (pytorch, tensor, named tensors)",
        "  before: l.0.mlp",
        "  after: nothing",
        "  arguments:",
        "    input.0  float32[2, 2]  file step0.safetensors",
        "  outputs:",
        "    output.0  float32[2, 2]  file step0.safetensors",
        "  note: it is compared with another dump's, and not replayed",
    ]
    assert [each["record"] for each in described(capsys, path)] == ["l.0.mlp", "l.1.mlp"]


def test_show_describes_a_module(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_dump(level="mix")
    (found,) = described(capsys, path, "Module.net.Net.0")
    assert (found["api"], found["replay"], found["before"]) == ("Module.net.Net", [], [])
    assert [each["name"] for each in found["outputs"]] == ["output.0"]
    every = [each["record"] for each in described(capsys, path)]
    assert (len(every), every[-1]) == (5, "Module.net.Net.0")


def test_show_describes_a_record_of_msprobe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (unpack_msprobe(name, tmp_path) for name in TENSORS)
    data = json.loads(path.read_text())["data"]
    record = next(key for key in data if not key.startswith("Module")).rpartition(".")[0]
    (found,) = described(capsys, path, record)
    assert found["record"] == record
    wanted = [each for each in data[f"{record}.forward"]["input_args"] if isinstance(each, dict) and "Max" in each]
    told = [each for each in found["arguments"] if "dtype" in each]
    assert [(each.get("max"), each.get("norm"), each["file"]) for each in told] == [
        (each["Max"], each["Norm"], each["data_name"]) for each in wanted
    ]


def test_show_names_the_modules_of_a_call(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_dump()
    parents = {
        "Functional.linear.0.forward": "Module.net.fc.Linear.forward.0",
        "Module.net.fc.Linear.forward.0": "Module.net.Net.forward.0",
    }
    path.with_name("construct.json").write_text(json.dumps(parents))
    text = shown(capsys, path, "Functional.linear.0")
    assert "  in modules Module.net.Net.forward.0 > Module.net.fc.Linear.forward.0\n" in text
    path.with_name("construct.json").write_text(json.dumps({key: key for key in parents}))
    assert "in modules Functional.linear.0.forward\n" in shown(capsys, path, "Functional.linear.0")
    path.with_name("construct.json").write_text("[")
    assert "in modules" not in shown(capsys, path, "Functional.linear.0")


def test_show_lists_the_gradients_of_a_record(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = described(capsys, make_dump(), "torch.nn.functional.linear")
    assert [each["name"] for each in found["gradients"]] == ["input.0", "output.0", "output.1"]
    assert [each["verdict"] for each in found["replay"]] == ["run", "run"]


def test_show_describes_matching_records_or_all(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_dump()
    names = ["Functional.relu.0", "Functional.linear.0", "Torch.argmax.0", "Torch.load.0", "Module.net.Net.0"]
    assert [each["record"] for each in described(capsys, path, "Torch.*")] == names[2:4]
    assert [each["record"] for each in described(capsys, path)] == names
    assert described(capsys, path, "--api=nothing.like.that") == []
    (found,) = described(capsys, path, "Torch.load.0.forward")
    assert (found["replay"][0]["verdict"], found["replay"][0]["kind"]) == ("skip", "outside the allow-list")


def test_show_says_what_is_wrong_with_a_broken_record(make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]) -> None:
    content = entries()
    content["Functional.relu.0.forward"]["input_args"][0]["shape"] = -1
    path = make_dump(data=content)
    text = shown(capsys, path, "Functional.relu.0")
    assert f"  trouble: {path}: Functional.relu.0.forward: input_args.0.shape: found -1, expected" in text
    assert "  replay forward: skip: broken record: " in text


def test_show_describes_a_record_of_the_api_accuracy_checker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, unpack_checker(tmp_path) / "real_data", "Torch*softmax*0")
    assert "    kwargs.dim  int" in text
    assert "file Torch*softmax*0.0.pt" in text
    assert "(missing)" not in text


def test_show_describes_a_record_in_each_of_two_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (write(tmp_path / name, values("Torch_relu_0", [X], X)) for name in "ab")
    assert [each["dump"] for each in described(capsys, first, second, "*relu*")] == ["a/dump.pkl", "b/dump.pkl"]
    assert shown(capsys, first, second).count("Torch.relu.0.forward") == 2


def test_what_is_neither_a_dump_nor_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, values("Torch_relu_0", [X], X))
    assert main(["show", str(path), "Torch.realu"]) == 2
    told = capsys.readouterr().err
    assert told == (
        "pytest-probe: error: RECORD: 'Torch.realu' cannot be used; it is no dump, and matches no record; "
        "did you mean Torch.relu?\n"
    )


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch has no float4 before 2.8")
def test_blocks_of_a_scaled_product_whose_tensors_are_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = scaled.product("mxfp8", 0, (32, 256, 48), extremes=True)
    path = scaled.write(tmp_path, call, torch.from_numpy(call.exact).to(call.dtype))
    (found,) = described(capsys, path, "Torch._scaled_mm_v2.0")
    assert [each["name"] for each in found["blocks"]] == ["input", "mat2"]
    assert [each["blocks"] for each in found["blocks"]] == [32 * 8, 48 * 8]
    assert [each["not_finite"] for each in found["blocks"]] == [1, 0]
    (line,) = (line for line in shown(capsys, path, "Torch._scaled_mm_v2.0").splitlines() if "    input  2" in line)
    assert line.startswith("    input  256 scales over ")
    assert " binades, 1 of them not finite; " in line
    for file in (tmp_path / "dump_tensor_data").iterdir():
        file.unlink()
    (found,) = described(capsys, path, "Torch._scaled_mm_v2.0")
    assert found["blocks"] == []
