"""Dumps of Paddle as pytest runs them: alone, beside a dump of torch's, in 16 bit."""

from __future__ import annotations

import json
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.installed import needs_paddle
from tests.support.running import refusal

pytestmark = needs_paddle

ROOT = Path(__file__).parents[2]
LINES = """\
paddle.matmul(Tensor([8, 40],"float32"), Tensor([40, 9],"float32"), )
paddle.nn.functional.softmax(Tensor([8, 40],"float32"), axis=-1, )
paddle.load("model.pdparams", )
"""
NARROW = """\
paddle.matmul(Tensor([8, 40],"bfloat16"), Tensor([40, 9],"bfloat16"), )
paddle.add(Tensor([8],"float32"), Tensor([8],"float32"), )
"""


DROPOUTS = """paddle.nn.functional.dropout(Tensor([2, 8, 20, 30],"float64"), p=0.15, )
paddle.nn.functional.dropout2d(Tensor([8, 80, 5, 5],"float64"), p=0.3, )
paddle.nn.functional.dropout2d(Tensor([8, 80, 5, 5],"float64"), p=Tensor([],"float32"), )
"""


@pytest.fixture
def lines(pytester: pytest.Pytester) -> Path:
    path = pytester.path / "calls.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


@pytest.fixture
def narrow(pytester: pytest.Pytester) -> Path:
    path = pytester.path / "narrow.txt"
    path.write_text(NARROW, encoding="utf-8")
    return path


def torch_dump(pytester: pytest.Pytester) -> Path:
    shutil.copytree(ROOT / "cases/gpt", pytester.path / "gpt")
    return pytester.path / "gpt/dump.json"


def test_items_of_a_paddle_dump_pass(pytester: pytest.Pytester, lines: Path) -> None:
    result = pytester.runpytest(f"--probe-dump={lines}", "-v")
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(["probe: cpu, paddle 3.*, ftz allowed*", "*paddle.matmul.1.forward*PASSED*"])
    result.stdout.fnmatch_lines("*paddle.load.3.forward SKIPPED (paddle.load: paddle.load i*")
    result.stdout.no_fnmatch_line("probe:*torch*")


def test_all_items_of_the_paddle_demo_pass(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(f"--probe-dump={ROOT / 'cases/paddle-gpt'}", "-q")
    result.assert_outcomes(passed=130)


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, {"passed": 6}), (1 + 1e-9, {"failed": 6})])
def test_dropout_in_float64_passes_with_the_probability_in_either_dtype(
    pytester: pytest.Pytester, factor: float, outcome: dict[str, int]
) -> None:
    """Operators keep the probability in float32; where Paddle writes out the steps it has the tensor's own dtype."""
    (pytester.path / "calls.txt").write_text(DROPOUTS, encoding="utf-8")
    pytester.makeconftest(
        f"""
        import paddle

        own = {{name: getattr(paddle.nn.functional, name) for name in ("dropout", "dropout2d")}}

        def pytest_probe_register(registry):
            for name, function in own.items():
                registry.calls[f"paddle.nn.functional.{{name}}"] = (
                    lambda *args, function=function, **kwargs: function(*args, **kwargs) * {factor}
                )
        """
    )
    pytester.runpytest("--probe-dump=calls.txt").assert_outcomes(**outcome)


@pytest.mark.parametrize(("own", "other"), [("paddle", "torch"), ("pytorch", "paddle")])
def test_only_the_framework_of_the_dump_is_imported(
    pytester: pytest.Pytester, lines: Path, own: str, other: str
) -> None:
    dump = lines if own == "paddle" else torch_dump(pytester)
    code = (
        "import sys, pytest\n"
        f"code = pytest.main(['-q', '--probe-dump={dump}', '--probe-api=*softmax*', '--probe-api=*gelu*'])\n"
        f"print('loaded', {other!r} in sys.modules, int(code))"
    )
    result = pytester.run(sys.executable, "-c", code)
    result.stdout.fnmatch_lines(["loaded False 0"])


def test_dumps_of_two_frameworks_in_one_run(pytester: pytest.Pytester, lines: Path) -> None:
    args = (
        f"--probe-dump={lines}",
        f"--probe-dump={torch_dump(pytester)}",
        "--probe-api=*softmax*",
        "--probe-api=*gelu*",
        "--probe-out=out",
    )
    for more in ((), ("-n", "1")):
        shutil.rmtree(pytester.path / "out", ignore_errors=True)
        result = pytester.runpytest_subprocess(*args, *more)
        assert result.ret == 0
        result.stdout.fnmatch_lines("probe: cpu, torch *, paddle 3.*")
        run = json.loads((pytester.path / "out/run.json").read_text(encoding="utf-8"))
        assert [device["framework"] for device in run["devices"]] == ["torch", "paddle"]


def test_a_device_that_paddle_has_not(pytester: pytest.Pytester, lines: Path) -> None:
    said = refusal(pytester, f"--probe-dump={lines}", "--probe-device=gpu")
    said.fnmatch_lines(["*--probe-device: 'gpu' cannot be used; Paddle says: *; found here: cpu*"])


def test_16_bit_has_no_kernel(pytester: pytest.Pytester, narrow: Path) -> None:
    result = pytester.runpytest(f"--probe-dump={narrow}")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines("* 2  unsupported by the device")


def test_a_skip_for_want_of_a_16_bit_kernel_names_the_option(pytester: pytest.Pytester, narrow: Path) -> None:
    result = pytester.runpytest(f"--probe-dump={narrow}", "-rs")
    words = "not registered*; --probe-emulate computes 16 bit in float32 there, and rounds"
    assert sum(fnmatch(line, f"SKIPPED*{words}*") for line in result.outlines) > 0
    assert all("--probe-emulate" in line for line in result.outlines if "not registered" in line)


UNSCALED = """paddle.nn.functional.dropout(Tensor([64, 64],"float32"), p=0.3, mode="downscale_in_infer", )
paddle.nn.functional.dropout(Tensor([64, 64],"float32"), p=0.3, training=False, mode="downscale_in_infer", )
"""
DROPOUT_FAULTS = {
    "healthy": ("out", {"passed": 4}),
    "the factor of the other mode": ("out / 0.7", {"failed": 4}),
    "a column": ("out * (1 + (paddle.arange(64) == 7) * 0.01)", {"failed": 4}),
    "a quarter lost": ("out * (paddle.arange(64) % 4 != 0)", {"failed": 4}),
}


@pytest.mark.parametrize("fault", DROPOUT_FAULTS)
def test_a_dropout_that_scales_in_evaluation(pytester: pytest.Pytester, fault: str) -> None:
    (pytester.path / "calls.txt").write_text(UNSCALED, encoding="utf-8")
    changed, outcome = DROPOUT_FAULTS[fault]
    pytester.makeconftest(
        f"""
        import paddle

        own = paddle.nn.functional.dropout

        def dropout(*args, **kwargs):
            out = own(*args, **kwargs)
            return {changed}

        def pytest_probe_register(registry):
            registry.calls["paddle.nn.functional.dropout"] = dropout
        """
    )
    pytester.runpytest("--probe-dump=calls.txt").assert_outcomes(**outcome)


def test_16_bit_is_emulated(pytester: pytest.Pytester, narrow: Path) -> None:
    result = pytester.runpytest(f"--probe-dump={narrow}", "--probe-emulate", "--probe-out=out", "--junitxml=junit.xml")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "probe: cpu, paddle 3.*, 16 bit emulated in float32",
            "2 cases emulated: 16 bit computed in float32 and rounded",
        ]
    )
    out = pytester.path / "out"
    results = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    notes = {each["id"].partition("::")[2]: [note for note in each["notes"] if "emulated" in note] for each in results}
    assert notes["paddle.matmul.1.backward"] == ["emulated: bfloat16 computed in float32 and rounded"]
    assert notes["paddle.add.2.forward"] == []
    (device,) = json.loads((out / "run.json").read_text(encoding="utf-8"))["devices"]
    assert device["emulated"] == "16 bit in float32"
    junit = (pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert junit.count('name="probe.emulated" value="16 bit in float32"') == 2


def test_a_framework_that_has_the_kernels(pytester: pytest.Pytester) -> None:
    said = refusal(pytester, f"--probe-dump={torch_dump(pytester)}", "--probe-emulate")
    said.fnmatch_lines(["*--probe-emulate: 'cpu' cannot be used; torch has 16-bit kernels there*"])


def test_the_command_of_a_failing_item_is_emulated_too(pytester: pytest.Pytester, narrow: Path) -> None:
    pytester.makeconftest(
        """
        import paddle
        right = paddle.matmul
        paddle.matmul = lambda x, y: right(x, y) * (1 if x.dtype == paddle.float64 else 1.02)
        """
    )
    result = pytester.runpytest_subprocess(f"--probe-dump={narrow}", "--probe-emulate", "--probe-direction=forward")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines("to reproduce: pytest 'narrow.txt::paddle.matmul.1.forward'*--probe-emulate*")


@pytest.mark.parametrize("mode", ["time,mem", "acc,time,mem"])
def test_time_and_memory_of_paddle_calls_are_measured(pytester: pytest.Pytester, lines: Path, mode: str) -> None:
    args = [f"--probe-dump={lines}", f"--probe-mode={mode}", "--probe-time-budget=0", "--probe-out=out"]
    pytester.runpytest(*args).assert_outcomes(passed=4, skipped=1)
    found = [json.loads(line) for line in (pytester.path / "out/results.jsonl").read_text().splitlines()]
    measured = {each["id"].partition("::")[2]: each for each in found if "time" in each}
    assert len(measured) == 4
    matmul = measured["paddle.matmul.1.forward"]
    assert matmul["time"]["median_us"] > 0
    assert matmul["time"]["input_shapes"] == [[8, 40], [40, 9]]
    # 8 x 9 floats.
    assert matmul["memory"]["growth_bytes"] == 4 * 8 * 9
    assert matmul["memory"]["source"] == "allocator"
    assert matmul["memory"]["input_bytes"] == 4 * (8 * 40 + 40 * 9)


def test_an_extra_buffer_shows_in_memory(pytester: pytest.Pytester, lines: Path) -> None:
    args = [f"--probe-dump={lines}", "--probe-mode=mem", "--probe-api=*softmax", "--probe-direction=forward"]
    peaks = []
    for folder in ("plain", "greedy"):
        pytester.runpytest(*args, f"--probe-out={folder}").assert_outcomes(passed=1)
        (line,) = (pytester.path / folder / "results.jsonl").read_text().splitlines()
        peaks.append(json.loads(line)["memory"]["peak_bytes"])
        pytester.makeconftest(
            """
            import paddle

            def softmax(x, axis):
                buffer = paddle.empty([1 << 20])  # 4 MB
                return paddle.nn.functional.softmax(x, axis)

            def pytest_probe_register(registry):
                registry.calls["paddle.nn.functional.softmax"] = softmax
            """
        )
    assert abs(peaks[1] - peaks[0] - (1 << 22)) <= 4096
