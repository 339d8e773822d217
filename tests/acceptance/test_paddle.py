"""Dumps of Paddle as pytest runs them: alone, beside a dump of torch's, in 16 bit."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.installed import needs_paddle
from tests.support.other_plugins import Ran
from tests.support.running import ran, refusal

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


UNSCALED = """paddle.nn.functional.dropout(Tensor([64, {0}],"float32"), p=0.3, mode="downscale_in_infer", )
paddle.nn.functional.dropout(Tensor([64, {0}],"float32"), p=0.3, training=False, mode="downscale_in_infer", )
"""
# What is wrong with a dropout of so many columns: another factor, the other mode's, a column, a quarter that is lost.
FAULTS = """
    import paddle

    own = {name: getattr(paddle.nn.functional, name) for name in ("dropout", "dropout2d")}
    wrong = {
        64: lambda out: out / 0.7,
        63: lambda out: out * (1 + (paddle.arange(63) == 7) * 0.01),
        62: lambda out: out * (paddle.arange(62) % 4 != 0),
    }

    def faulty(name):
        def call(x, *args, **kwargs):
            out = own[name](x, *args, **kwargs)
            return out * (1 + 1e-9) if x.dtype == paddle.float64 else wrong[x.shape[-1]](out)
        return call

    def pytest_probe_register(registry):
        for name in own:
            registry.calls[f"paddle.nn.functional.{name}"] = faulty(name)
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


def dropouts(folder: Path, conftest: str = "") -> Ran:
    """A run of dropouts, and of the calls above."""
    texts = {"calls": LINES, "narrow": NARROW, "float64": DROPOUTS}
    texts["unscaled"] = "".join(UNSCALED.format(columns) for columns in (64, 63, 62))
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    (folder / "conftest.py").write_text(dedent(conftest), encoding="utf-8")
    return ran(folder, *(f"--probe-dump={name}.txt" for name in texts), "--probe-out=out", "-v", "-rs")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return dropouts(tmp_path_factory.mktemp("healthy"))


def verdicts(found: Ran, name: str) -> Counter[str]:
    return Counter(row["verdict"] for row in found.rows if row["id"].startswith(f"{name}.txt"))


def torch_dump(pytester: pytest.Pytester) -> Path:
    shutil.copytree(ROOT / "cases/gpt", pytester.path / "gpt")
    return pytester.path / "gpt/dump.json"


def test_items_of_a_paddle_dump_pass(healthy: Ran) -> None:
    assert verdicts(healthy, "calls") == {"pass": 4, "skip": 1}
    shown = healthy.result.stdout
    shown.fnmatch_lines(["probe: cpu, paddle 3.*, ftz allowed*", "*paddle.matmul.1.forward*PASSED*"])
    shown.fnmatch_lines("*paddle.load.3.forward SKIPPED (paddle.load: paddle.load i*")
    shown.no_fnmatch_line("probe:*torch*")


def test_dropout_passes_in_either_dtype_and_mode_and_a_wrong_one_fails(healthy: Ran, tmp_path: Path) -> None:
    """Operators keep the probability in float32; where Paddle writes out the steps it has the tensor's own dtype."""
    assert (verdicts(healthy, "float64"), verdicts(healthy, "unscaled")) == ({"pass": 6}, {"pass": 12})
    wrong = dropouts(tmp_path, FAULTS)
    assert (verdicts(wrong, "float64"), verdicts(wrong, "unscaled")) == ({"error": 6}, {"error": 12})


def test_all_items_of_the_paddle_demo_pass(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(f"--probe-dump={ROOT / 'cases/paddle-gpt'}", "-q")
    result.assert_outcomes(passed=130)


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


def test_dumps_of_two_frameworks_in_one_run_of_two_workers(pytester: pytest.Pytester, lines: Path) -> None:
    args = (
        f"--probe-dump={lines}",
        f"--probe-dump={ROOT / 'cases/paddle-gpt'}",
        f"--probe-dump={torch_dump(pytester)}",
        "--probe-api=*softmax*",
        "--probe-api=*gelu*",
        "--probe-out=out",
    )
    found = Ran(pytester.runpytest_subprocess(*args, "-n", "2"), pytester.path)
    assert found.result.ret == 0
    found.result.stdout.fnmatch_lines("probe: cpu, torch *, paddle 3.*")
    assert [device["framework"] for device in found.run["devices"]] == ["torch", "paddle"]


def test_a_device_that_paddle_has_not(pytester: pytest.Pytester, lines: Path) -> None:
    said = refusal(pytester, f"--probe-dump={lines}", "--probe-device=gpu")
    said.fnmatch_lines(["*--probe-device: 'gpu' cannot be used; Paddle says: *; found here: cpu*"])


def test_a_skip_for_want_of_a_16_bit_kernel_names_the_option(healthy: Ran) -> None:
    assert verdicts(healthy, "narrow") == {"pass": 2, "skip": 2}
    healthy.result.stdout.fnmatch_lines("* 2  unsupported by the device")
    words = "not registered*; --probe-emulate computes 16 bit in float32 there, and rounds"
    skips = [line for line in healthy.result.outlines if line.startswith("SKIPPED") and "not registered" in line]
    assert skips
    assert all(fnmatch(line, f"SKIPPED*{words}*") for line in skips)


def test_16_bit_is_emulated(pytester: pytest.Pytester, narrow: Path) -> None:
    files = ("--probe-out=out", "--junitxml=junit.xml")
    found = Ran(pytester.runpytest(f"--probe-dump={narrow}", "--probe-emulate", *files), pytester.path)
    found.result.assert_outcomes(passed=4)
    found.result.stdout.fnmatch_lines(
        [
            "probe: cpu, paddle 3.*, 16 bit emulated in float32",
            "2 cases emulated: 16 bit computed in float32 and rounded",
        ]
    )
    notes = {name: [note for note in row["notes"] if "emulated" in note] for name, row in found.by_name.items()}
    assert notes["paddle.matmul.1.backward"] == ["emulated: bfloat16 computed in float32 and rounded"]
    assert notes["paddle.add.2.forward"] == []
    (device,) = found.run["devices"]
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

        def matmul(x, y):
            return paddle.matmul(x, y) * (1 if x.dtype == paddle.float64 else 1.02)

        def pytest_probe_register(registry):
            registry.calls["paddle.matmul"] = matmul
        """
    )
    result = pytester.runpytest(f"--probe-dump={narrow}", "--probe-emulate", "--probe-direction=forward")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines("to reproduce: pytest 'narrow.txt::paddle.matmul.1.forward'*--probe-emulate*")


def test_time_and_memory_of_paddle_calls_are_measured(pytester: pytest.Pytester, lines: Path) -> None:
    args = [f"--probe-dump={lines}", "--probe-mode=acc,time,mem", "--probe-time-budget=0", "--probe-out=out"]
    found = Ran(pytester.runpytest(*args), pytester.path)
    found.result.assert_outcomes(passed=4, skipped=1)
    measured = {name: row for name, row in found.by_name.items() if "time" in row}
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
