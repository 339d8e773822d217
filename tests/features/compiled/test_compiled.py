"""--probe-compile: recorded calls through compilers, right ones and broken ones, on the CPU and on a device of another
name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor, written
from tests.support.compilers import BROKEN
from tests.support.dumps import unpack
from tests.support.installed import needs_paddle
from tests.support.running import by_case, ran, refusal, rows

CONFTEST = """
from tests.support import compilers, devices

def pytest_probe_register(registry):
    registry.devices["other"] = devices.Emulated
    registry.compilers.update(compilers.BROKEN)
    registry.compilers["fusing"] = compilers.FUSING
"""
NUMBER = {"type": "int", "value": 1}
SHAPE = {"type": "torch.Size", "value": [16]}


def plain(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return tensor(*shape, dtype=dtype, requires_grad=False)


CALLS = {
    "Functional.linear.0.forward": forward(tensor(4, 8), tensor(16, 8), tensor(16), output=tensor(4, 16)),
    "Functional.linear.0.backward": backward(tensor(4, 16), tensor(4, 8), tensor(16, 8), tensor(16)),
    "Functional.layer_norm.0.forward": forward(tensor(4, 16), SHAPE, tensor(16), tensor(16), output=tensor(4, 16)),
    "Torch.matmul.0.forward": forward(plain(8, 2048), plain(2048, 8), output=plain(8, 8)),
    "Tensor.add_.0.forward": forward(plain(8), plain(8), output=plain(8)),
    "Torch.var_mean.0.forward": {**forward(plain(8, 8), NUMBER, output=plain(8)), "output": [plain(8), plain(8)]},
    "Functional.gelu.0.forward": forward(tensor(4, 8), output=tensor(4, 8)),
    "Functional.gelu.0.backward": backward(tensor(4, 8), tensor(4, 8)),
    "Functional.silu.0.forward": forward(plain(64, dtype="bfloat16"), output=plain(64, dtype="bfloat16")),
}
# The item in which each breaks.
FOUND_IN = {
    "dropped-bias": "Functional.linear.0.forward",
    "wrong-eps": "Functional.layer_norm.0.forward",
    "half-sums": "Torch.matmul.0.forward",
    "lost-writes": "Tensor.add_.0.forward",
    "swapped": "Torch.var_mean.0.forward",
    "wrong-gradient": "Functional.gelu.0.backward",
    "stale": "Functional.gelu.0.forward",
}


@pytest.fixture
def run(pytester: pytest.Pytester, make_dump: DumpMaker) -> Any:
    pytester.makeconftest(CONFTEST)

    def one(*args: str, calls: Any = CALLS) -> tuple[pytest.RunResult, dict[str, Any]]:
        make_dump(data=calls)
        result = pytester.runpytest("--probe-dump=dump.json", "--probe-out=out", *args)
        return result, by_case()

    return one


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {name: each["verdict"] for name, each in found.items()}


def test_calls_are_compiled_and_right(run: Any) -> None:
    result, found = run("--probe-compile=aot_eager", "--probe-device=other")
    assert set(verdicts(found).values()) == {"pass"}
    result.stdout.fnmatch_lines(
        ["probe: calls on the device are compiled by aot_eager", "compile, 9 cases: 9 compiled by aot_eager; graphs *"]
    )
    linear = found["Functional.linear.0.forward"]
    assert (linear["answers"][0]["outcome"], linear["answers"][0]["totals"]["graphs"]) == ("compiled by aot_eager", 1)
    assert "compiled by aot_eager: 1 graph" in linear["notes"]


# An elementwise call with its gradient, a reduction, a product and one in place.
SOME = {name: call for name, call in CALLS.items() if any(api in name for api in ("gelu", "linear.0.forward", "add_"))}
SOME["Torch.sum.0.forward"] = forward(plain(8, 64), NUMBER, output=plain(8))


@pytest.mark.slow
@pytest.mark.skipif(" " in tempfile.gettempdir(), reason="torch's inductor compiles nothing below a path with a space")
def test_inductor_is_right_and_its_files_are_none_of_the_users(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "of-the-user")
    _, found = run("--probe-compile=inductor", calls=SOME)
    assert len(found) == len(SOME)
    assert set(verdicts(found).values()) == {"pass"}
    gelu, linear = (found[f"Functional.{name}.0.forward"]["answers"][0]["totals"] for name in ("gelu", "linear"))
    assert (gelu["graphs"], gelu["kernels"], gelu["external calls"]) == (1, 1, 0)
    assert (linear["graphs"], linear["kernels"], linear["external calls"]) == (1, 0, 1)
    assert not Path("of-the-user").exists()
    assert found["Functional.gelu.0.forward"]["duration"] < gelu["seconds"]


@pytest.fixture(scope="module", params=["cpu", "other"])
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of a run with all compilers that break something, and of one that is right."""
    folder = tmp_path_factory.mktemp("broken")
    written(folder / "dump.json", CALLS)
    (folder / "conftest.py").write_text(CONFTEST)
    asked = (f"--probe-compile={','.join([*BROKEN, 'fusing'])}", f"--probe-device={request.param}", "--probe-repeat=2")
    ran(folder, "--probe-dump=dump.json", "--probe-out=out", *asked)
    return by_case(folder / "out")


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_compiler_breaks_is_an_error(broken: dict[str, Any], name: str) -> None:
    found = by_compiler(broken, name)
    assert found.keys() == CALLS.keys()
    assert verdicts(found)[FOUND_IN[name]] == "error"
    wrong = {each for each, verdict in verdicts(found).items() if verdict != "pass"}
    if name not in ("swapped", "wrong-gradient", "stale", "lost-writes"):
        assert wrong <= {FOUND_IN[name], FOUND_IN[name].replace("forward", "backward")}
    if name != "stale":
        assert any(note.startswith("eager: pass") for note in found[FOUND_IN[name]]["notes"])


def by_compiler(results: dict[str, Any], name: str) -> dict[str, Any]:
    end = f"[{name}]"
    return {item.removesuffix(end): row for item, row in results.items() if item.endswith(end)}


def test_a_fusion_that_keeps_float32_inside_is_right(broken: dict[str, Any]) -> None:
    assert by_compiler(broken, "fusing")["Functional.silu.0.forward"]["verdict"] == "pass"


def test_an_error_of_eager_mode_too_is_said(run: Any, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import torch

        def pytest_probe_register(registry):
            registry.calls["Functional.gelu"] = lambda x: torch.nn.functional.gelu(x) * 1.1
        """
    )
    _, found = run("--probe-compile=aot_eager", "-k", "gelu.0.forward")
    assert "eager errs too" in found["Functional.gelu.0.forward"]["notes"]


def test_several_compilers_are_several_items(run: Any) -> None:
    result, found = run("--probe-compile=eager,dropped-bias,dynamic", "--probe-dtype=float64,recorded", "-k", "linear")
    names = [f"Functional.linear.0.{way}" for way in ("forward", "backward")]
    dtypes, compilers = ("", "[float64]"), ("[eager]", "[dropped-bias]")
    assert found.keys() == {f"{name}{dtype}{each}" for name in names for dtype in dtypes for each in compilers}
    assert verdicts(found)["Functional.linear.0.forward[float64][eager]"] == "pass"
    assert found["Functional.linear.0.forward[eager]"]["answers"][0]["totals"]["graphs"] == 1
    assert verdicts(found)["Functional.linear.0.forward[dropped-bias]"] == "error"
    words = "to reproduce: pytest 'dump.json::Functional.linear.0.forward'* --probe-compile=dropped-bias,dynamic"
    result.stdout.fnmatch_lines(["probe: calls on the device are compiled by *, for any sizes", words])


def test_what_cannot_be_compiled_is_a_skip_and_a_compiler_that_breaks_an_error(run: Any) -> None:
    calls = {
        "Torch.relu.0.forward": forward(plain(4), output=plain(4)),
        "Torch.allclose.0.forward": forward(plain(4), plain(4), output={"type": "bool", "value": True}),
        "Tensor.size.0.forward": forward(plain(4), output={"type": "torch.Size", "value": [4]}),
    }
    _, found = run("--probe-compile=relu_compile_error_TESTING_ONLY", calls=calls)
    relu = found.pop("Torch.relu.0.forward")
    assert (relu["verdict"], relu["kind"]) == ("error", "compiler")
    assert "ReluCompileError" in relu["reason"]
    assert set(verdicts(found).values()) == {"skip"}
    assert {each["kind"] for each in found.values()} == {"not compilable"}
    assert "ran as without a compiler" in found["Tensor.size.0.forward"]["reason"]


def test_inductor_without_a_cpp_compiler(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    make_dump()
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    # monkeypatch would leave the setting deleted, for the tests behind this one.
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):
        said = refusal(pytester, "--probe-dump=dump.json", "--probe-compile=inductor")
    said.fnmatch_lines(["*needs a C++ compiler*no-such-compiler*install g++*"])


@needs_paddle
def test_static_graphs_of_paddle(pytester: pytest.Pytester) -> None:
    """What a call writes to an argument is lost in a static graph, which is a fault of it."""
    result = pytester.runpytest(
        f"--probe-dump={Path(__file__).parents[3] / 'cases/paddle-gpt'}", "--probe-compile=to_static", "--probe-out=out"
    )
    found = by_case().values()
    wrong = {each["api"] for each in found if each["verdict"] == "error"}
    assert wrong == {"paddle.Tensor.multiply_"}
    assert {each["kind"] for each in found if each["verdict"] == "skip"} == {"not compilable"}
    assert sum(each["verdict"] == "pass" for each in found) > 80
    result.stdout.fnmatch_lines(["compile, *"])


@pytest.mark.slow
def test_real_steps_pass_as_without_a_compiler(pytester: pytest.Pytester) -> None:
    root = Path(__file__).parents[3]
    dumps = f"--probe-dump={root / 'cases/gpt'}", f"--probe-dump={unpack('msprobe-26.2.0/cnn', pytester.path)}"
    result = pytester.runpytest(*dumps, "--probe-compile=aot_eager", "--probe-out=out")
    found = rows()
    assert len(found) == 417
    assert {each["verdict"] for each in found} == {"pass"}
    assert sum(each["answers"][0]["totals"]["seconds"] > 0.005 for each in found) <= 170
    assert result.ret == 0
