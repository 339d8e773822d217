"""MindSpore's programs, recorded."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe import frameworks
from pytest_probe.capture.debugger import PrecisionDebugger, capture
from pytest_probe.errors import OverflowFound, SettingsError
from tests.support.installed import needs_mindspore

pytestmark = [pytest.mark.mindspore, needs_mindspore]
if not frameworks.unavailable("mindspore"):
    frameworks.load("mindspore").device("CPU")
    import mindspore
    from mindspore import Tensor, mint, nn, ops
    from mindspore.mint import sin as bound_before

Data = dict[str, dict[str, Any]]
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 4


def dumped(folder: Path, file: str = "dump.json") -> Any:
    (path,) = folder.glob(f"step0/*/{file}")
    return json.loads(path.read_text())


def entries(folder: Path) -> Data:
    found: Data = dumped(folder)["data"]
    return found


def recording(folder: Path, **options: Any) -> Any:
    return capture(folder, framework="mindspore", **options)


def shown(entry: Any) -> tuple[Any, ...]:
    return entry["dtype"], entry["shape"], entry["Max"], entry["Min"]


def test_calls_of_all_places_have_the_names_that_a_replay_finds(tmp_path: Path) -> None:
    x = Tensor(X)
    with recording(tmp_path / "d"):
        mint.sin(x)
        bound_before(x)
        mint.nn.functional.relu(x)
        ops.gelu(x)
        x + 1
        x.sum()
        x[0]
    assert list(entries(tmp_path / "d")) == [
        *("Mint.sin.0.forward", "Mint.sin.1.forward", "MintFunctional.relu.0.forward", "Functional.gelu.0.forward"),
        *("Tensor.__add__.0.forward", "Tensor.sum.0.forward", "Tensor.__getitem__.0.forward"),
    ]
    known = set(frameworks.load("mindspore").apis())
    assert {"Mint.sin", "MintFunctional.relu", "Functional.gelu", "Tensor.__add__", "Tensor.sum"} <= known


def test_functions_of_mint_that_msprobe_does_not_list_are_recorded(tmp_path: Path) -> None:
    f, images, rows = mint.nn.functional, mint.ones((2, 4, 8, 8)), Tensor(X)
    with recording(tmp_path / "d"):
        f.adaptive_max_pool2d(images, 2)
        f.broadcast_to(rows, (2, *rows.shape))
        f.clamp(rows, -1, 1)
        f.flatten(images)
        f.glu(rows, 1)
        f.nll_loss(rows, Tensor(np.array([0, 1, 2])))
        f.pixel_shuffle(images, 2)
        f.upsample(images, (4, 4))
    names = "adaptive_max_pool2d broadcast_to clamp flatten glu nll_loss pixel_shuffle upsample".split()
    found = [entry.split(".")[1] for entry in entries(tmp_path / "d")]
    assert found == names


def test_everything_is_put_back(tmp_path: Path) -> None:
    places = (mint, mint.nn.functional, ops, mindspore.Tensor, mindspore.Parameter, nn.Cell, nn.Optimizer)
    before = [dict(vars(place)) for place in places]
    with recording(tmp_path / "d"):
        assert mint.sin is not before[0]["sin"]
        assert mint.sin.__name__ == "sin"
        mint.sin(Tensor(X))
    assert [dict(vars(place)) for place in places] == before


def test_statistics_of_every_kind_of_tensor(tmp_path: Path) -> None:
    half = Tensor(X).to(mindspore.bfloat16)
    complex_ = Tensor(np.array([3 + 4j, 1], np.complex64))
    with recording(tmp_path / "d"):
        for value in (half, complex_, Tensor(X > 0), Tensor(np.array([-3, 5], np.int8)), Tensor(np.float32(2.5))):
            mint.reshape(value, tuple(value.shape))
        mint.cat([Tensor(np.zeros((0, 4), np.float32)), Tensor(X).permute(0, 1)])
        mint.mul(Tensor(X).permute(1, 0), 2.0)
        mint.mul(Tensor(np.array([np.nan, np.inf, 1], np.float32)), 1.0)
    data = entries(tmp_path / "d")
    found = [shown(data[f"Mint.reshape.{number}.forward"]["input_args"][0]) for number in range(5)]
    assert found == [
        ("BFloat16", [3, 4], 7.0, -4.0),
        ("Complex64", [2], 5.0, 1.0),
        ("Bool", [3, 4], True, False),
        ("Int8", [2], 5, -3),
        ("Float32", [], 2.5, 2.5),
    ]
    empty, whole = data["Mint.cat.0.forward"]["input_args"][0]
    assert shown(empty) == ("Float32", [0, 4], None, None)
    assert whole["Norm"] == pytest.approx(np.linalg.norm(X))
    turned = data["Mint.mul.0.forward"]["input_args"][0]
    assert (turned["stride"], turned["Mean"]) == ([1, 4], X.mean())
    special = data["Mint.mul.1.forward"]["output"][0]
    assert (special["NaN"], special["Inf"], special["Max_except_inf_nan"]) == (1, 1, 1.0)


def test_inputs_are_those_before_the_call_whatever_is_written_later(tmp_path: Path) -> None:
    x, parameter = mint.mul(Tensor(X), 1.0), mindspore.Parameter(np.ones(3, np.float32))
    with recording(tmp_path / "d"):
        mint.mul(x, 2.0)
        x[0] = 100.0
        mint.mul(x, 2.0)
        mint.mul(parameter, 2.0)
        ops.assign(parameter, Tensor(np.zeros(3, np.float32)))
        mint.mul(parameter, 2.0)
        parameter.set_data(Tensor(np.full(3, 7, np.float32)))
        mint.mul(parameter, 2.0)
        ops.Assign()(parameter, Tensor(np.full(3, 8, np.float32)))
        nn.SGD([parameter], 1.0)((Tensor(np.ones(3, np.float32)),))
        mint.mul(parameter, 2.0)
    data = entries(tmp_path / "d")
    highest = [data[f"Mint.mul.{number}.forward"]["input_args"][0]["Max"] for number in range(6)]
    assert highest == [7.0, 100.0, 1.0, 0.0, 7.0, 7.0]
    written = data["Tensor.__setitem__.0.forward"]
    assert (written["input_args"][0]["Max"], written["output"]) == (7.0, [None])


def test_gradients_of_outputs_are_those_that_came(tmp_path: Path) -> None:
    def loss(x: Any) -> Any:
        first, second = mint.split(mint.sin(x), 2, dim=0)
        return (first * 3.0).sum() + second.sum() * 5.0 + first.sum()

    with recording(tmp_path / "d", task="tensor"):
        gradient = mindspore.grad(loss)(Tensor(X))
    data = entries(tmp_path / "d")
    split = data["Mint.split.0.backward"]
    assert split["probe"] == {"outputs": ["output.0", "output.1"], "inputs": []}
    assert [each["Max"] for each in split["input"]] == [4.0, 5.0]
    (folder,) = (tmp_path / "d").glob("step0/*/dump_tensor_data")
    incoming = np.load(folder / "Mint.sin.0.backward.input.0.npy")
    np.testing.assert_allclose(incoming * np.cos(X), gradient.asnumpy(), rtol=1e-5)


def test_a_dump_of_tensors_is_replayed_and_judged_as_recorded(pytester: pytest.Pytester) -> None:
    layer = nn.Dense(4, 2)

    def loss(x: Any, y: Any) -> Any:
        hidden = mint.nn.functional.linear(x, layer.weight, layer.bias)
        return ops.cross_entropy(hidden, y) + (x.to(mindspore.bfloat16) + 1).float().mean()

    with recording(pytester.path / "d", task="tensor"):
        mindspore.value_and_grad(loss, None, layer.trainable_params())(Tensor(X), Tensor(np.array([0, 1, 1], np.int32)))
    half = next((pytester.path / "d").glob("step0/*/dump_tensor_data/Tensor.to.0.forward.output.0.npy"))
    assert np.load(half).tolist() == X.astype(ml_dtypes.bfloat16).astype(np.float32).tolist()
    for device in ("CPU", "recorded"):
        result = pytester.runpytest("--probe-dump=d", f"--probe-device={device}", "-rs")
        assert result.ret == 0
        assert result.parseoutcomes()["passed"] >= 5


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_cells_and_what_they_call(tmp_path: Path, level: str) -> None:
    class Net(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dense(4, 2)

        def construct(self, x: Any) -> Any:
            return mint.sin(self.inner(x))

    net = Net()
    debugger = PrecisionDebugger(dump_path=tmp_path / "d", level=level, framework="mindspore")
    with pytest.raises(SettingsError, match=r"give a mindspore\.nn\.Cell"):
        debugger.start()
    debugger.start(net)
    mindspore.grad(lambda x: net(x).sum())(Tensor(X))
    debugger.close()
    data, parents = entries(tmp_path / "d"), dumped(tmp_path / "d", "construct.json")
    cell = data["Cell.inner.Dense.forward.0"]
    assert cell["parameters"]["weight"]["shape"] == [2, 4]
    assert data["Cell.inner.Dense.backward.0"]["input"][0]["shape"] == [3, 2]
    assert ("Mint.sin.0.forward" in data) == (level == "mix")
    assert parents["Cell.inner.Dense.forward.0"] is None


def test_what_is_compiled_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @mindspore.jit  # type: ignore[untyped-decorator]
    def compiled(x: Any) -> Any:
        return mint.sin(x) + 1

    with caplog.at_level(logging.WARNING), recording(tmp_path / "d"):
        first = compiled(Tensor(X))
        compiled(Tensor(X))
        mint.cos(first)
    found = entries(tmp_path / "d")
    assert list(found) == ["Jit.compiled.0.forward", "Jit.compiled.1.forward", "Mint.cos.0.forward"]
    assert [shown(each) for each in found["Jit.compiled.0.forward"]["input_args"]] == [("Float32", [3, 4], 7.0, -4.0)]
    assert found["Jit.compiled.0.forward"]["output"] == found["Mint.cos.0.forward"]["input_args"]
    (said,) = (record.message for record in caplog.records if "compiled" in record.message)
    assert "run the program in PyNative mode, without jit" in said


def test_what_is_compiled_takes_tensors_whose_gradients_are_recorded(tmp_path: Path) -> None:
    @mindspore.jit  # type: ignore[untyped-decorator]
    def compiled(x: Any) -> Any:
        return x * 2

    def loss(x: Any) -> Any:
        return mint.sum(compiled(compiled(mint.cos(x))))

    step = mindspore.value_and_grad(loss)
    plain = [each.asnumpy() for each in step(Tensor(X))]
    with recording(tmp_path / "d"):
        found = [each.asnumpy() for each in step(Tensor(X))]
    assert all(map(np.array_equal, plain, found))
    backwards = {name: each for name, each in entries(tmp_path / "d").items() if name.endswith("backward")}
    assert [shown(backwards[name]["input"][0]) for name in ("Jit.compiled.1.backward", "Mint.cos.0.backward")] == [
        ("Float32", [3, 4], 1.0, 1.0),
        ("Float32", [3, 4], 4.0, 4.0),
    ]


def test_lists_steps_and_overflows(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(dump_path=tmp_path / "d", white_list=["sin"], step=[1], framework="mindspore")
    for _ in range(3):
        debugger.start()
        mint.sin(Tensor(X))
        mint.cos(Tensor(X))
        debugger.stop()
        debugger.step()
    debugger.close()
    (path,) = (tmp_path / "d").glob("step*/*/dump.json")
    assert path.parent.parent.name == "step1"
    assert list(json.loads(path.read_text())["data"]) == ["Mint.sin.0.forward"]
    with recording(tmp_path / "o", task="overflow_check"):
        mint.sin(Tensor(X))
        with pytest.raises(OverflowFound, match=r"Mint\.log\.0"):
            mint.log(Tensor(X))
    assert list(entries(tmp_path / "o")) == ["Mint.log.0.forward"]


def test_kernels_are_out_of_scope(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="msprobe's dump of Ascend kernels"):
        PrecisionDebugger(dump_path=tmp_path / "d", level="L2", framework="mindspore")


PROGRAM = """
import mindspore, numpy as np
from mindspore import Tensor, mint, nn, ops
try:
    mint.mul(Tensor(np.ones(1, "f")), 1.0)   # built for NumPy 1, MindSpore's first call raises with NumPy 2
except SystemError:
    pass
random = np.random.default_rng(0)
mindspore.set_seed(0)
net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 4))
optimizer = nn.Adam(net.trainable_params(), 0.01)

def loss(x, y):
    hidden = mint.sin(net(x))
    left, right = mint.split(hidden, 2, -1)
    return ops.cross_entropy(mint.cat([right, left], dim=-1), y)

step = mindspore.value_and_grad(loss, None, optimizer.parameters)
for _ in range(3):
    x, y = Tensor(random.standard_normal((12, 8)).astype("f")), Tensor(random.integers(0, 4, 12).astype("i4"))
    value, gradients = step(x, y)
    optimizer(gradients)
    print(value.asnumpy().tobytes().hex())
try:
    mint.atan2(x, x)
    x.asnumpy() + mint.atan2(x, x).asnumpy()
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_a_program_has_the_same_losses_and_errors_and_each_step_its_folder(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*way: str) -> str:
        command = [sys.executable, *way, "program.py"]
        return subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout

    plain = run()
    assert "The kernel Atan2Ext unregistered." in plain
    ours = ("-c", "import sys; from pytest_probe.cli import main; sys.exit(main())")
    assert run(*ours, "capture", "-o", "dumps", "--step", "all") == plain
    folders = sorted(path.parent.parent.name for path in (tmp_path / "dumps").glob("*/*/dump.json"))
    assert folders[:3] == ["step0", "step1", "step2"]
    data = entries(tmp_path / "dumps")
    assert {"Mint.sin.0.forward", "Mint.sin.0.backward", "Functional.cross_entropy.0.backward"} <= data.keys()
    assert run(*ours, "time", "--out", "times").splitlines()[: len(plain.splitlines())] == plain.splitlines()
