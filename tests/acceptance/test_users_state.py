"""What a project has set in its process changes no verdict, no input and no reference; the run says what is set."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F

from tests.acceptance.conftest import DumpMaker
from tests.support import forks
from tests.support.users_state import PLAIN, STATES
from tests.support.writing import entries, write_dump

Rows: TypeAlias = dict[str, dict[str, Any]]
ROOT = Path(__file__).parent.parent.parent

# Each dump's cases run under the setting that it is named after.
CONFTEST = """
    import pytest
    from tests.support.users_state import STATES

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item):
        with STATES[item.path.parent.name]():
            return (yield)
"""
# The CPU's own state is the device's: what it computes then is its own affair, and what it draws.
OF_DEVICE = {
    "matmul bf16",
    "medium",
    "medium and tf32",
    "fp32_precision",
    "conv bf16",
    "matmul tf32",
    "threads",
    "flush denormal",
}


def calls() -> Iterator[dict[str, Any]]:
    """Calls that one of the settings would change, or end."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    places = torch.randint(0, 10, (8,), generator=generator)
    yield entries("Functional.linear.0", F.linear, normal(8, 64), normal(32, 64), normal(32), backward=True)
    yield entries("Functional.linear.1", F.linear, normal(8, 64).bfloat16(), normal(32, 64).bfloat16(), backward=True)
    yield entries("Torch.matmul.0", torch.matmul, normal(128, 256), normal(256, 128), backward=True)
    yield entries("Functional.conv2d.0", F.conv2d, normal(2, 8, 12, 12), normal(8, 8, 3, 3), backward=True)
    yield entries("Functional.gelu.0", F.gelu, normal(64, 64), backward=True)
    yield entries("Functional.softmax.0", F.softmax, normal(64, 64), 1, backward=True)
    yield entries("Functional.layer_norm.0", F.layer_norm, normal(16, 64), (64,), backward=True)
    yield entries("Functional.embedding.0", F.embedding, places, normal(10, 6))
    yield entries("Functional.cross_entropy.0", F.cross_entropy, normal(8, 10), places, backward=True)
    # None of them says its dtype or device.
    yield entries("Torch.zeros.0", torch.zeros, 3, 4)
    yield entries("Torch.arange.0", torch.arange, 0.0, 1.0, 0.125)
    yield entries("Torch.full.0", torch.full, (3,), 0.5)
    yield entries("Torch.div.0", torch.div, torch.arange(5), torch.arange(1, 6))
    yield entries("Torch.sum.0", torch.sum, normal(1000), backward=True)
    yield entries("Tensor.add_.0", torch.Tensor.add_, normal(10), normal(10), backward=True)
    yield entries("Functional.dropout.0", F.dropout, normal(1000), 0.5)
    # Subnormal numbers, and a gradient of NaN, at which anomaly mode raises.
    yield entries("Tensor.exp.0", torch.Tensor.exp, normal(100) - 100, backward=True)
    yield entries("Torch.sqrt.0", torch.sqrt, -normal(10).abs(), backward=True)
    # A dtype that warns (complex to real).
    yield entries("Tensor.double.0", torch.Tensor.double, torch.complex(normal(4), normal(4)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one dump under each setting, in one process."""
    made = tmp_path_factory.mktemp("states")
    (made / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    data = {name: entry for call in calls() for name, entry in call.items()}
    for name in STATES:
        (made / name).mkdir()
        write_dump(made / name, data)
    dumps = [f"--probe-dump={made / name / 'dump.json'}" for name in STATES]
    probe(made, *dumps, "--probe-out=out", "--probe-save=all")
    return made


def probe(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--probe-device=cpu", *args]
    return forks.run(command, folder, {**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Rows]:
    found: defaultdict[str, Rows] = defaultdict(dict)
    for line in (folder / "out" / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        label, name = row["id"].split("::")
        found[label.split("/")[0]][name] = row
    return found


def test_without_any_they_pass(results: dict[str, Rows]) -> None:
    assert verdicts(results[PLAIN]) == dict.fromkeys(results[PLAIN], "pass")
    assert len(results[PLAIN]) > 25


@pytest.mark.parametrize("state", [name for name in STATES if name != PLAIN])
def test_a_setting_changes_no_verdict(results: dict[str, Rows], state: str) -> None:
    assert verdicts(results[state]) == verdicts(results[PLAIN])
    if state not in OF_DEVICE:
        assert metrics(results[state]) == metrics(results[PLAIN])


def verdicts(rows: Rows) -> dict[str, str]:
    return {name: row["verdict"] for name, row in rows.items()}


def metrics(rows: Rows) -> dict[str, Any]:
    return {
        name: [output["metrics"] for output in row["outputs"]]
        for name, row in rows.items()
        if row["api"] != "Functional.dropout"
    }


@pytest.mark.parametrize("state", [name for name in STATES if name != PLAIN])
def test_a_setting_changes_no_input_and_no_reference(folder: Path, state: str) -> None:
    files = sorted((folder / "out" / "saved" / PLAIN / "dump.json").glob("*.pt"))
    assert len(files) > 25
    for file in files:
        plain = torch.load(file)
        found = torch.load(folder / "out" / "saved" / state / "dump.json" / file.name)
        assert plain.keys() == found.keys()
        for name in plain:
            if not name.startswith("actual."):
                torch.testing.assert_close(found[name], plain[name], rtol=0, atol=0, equal_nan=True)


def test_the_run_says_what_is_set(tmp_path: Path) -> None:
    """Also where torch itself refuses to read a flag."""
    conftest = """
        import torch
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.backends.fp32_precision = "tf32"
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        torch.set_grad_enabled(False)
        mode = torch.inference_mode()
        mode.__enter__()
        torch.autocast("cpu").__enter__()
        torch.set_flush_denormal(True)
    """
    (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
    dump = write_dump(tmp_path, entries("Functional.relu.0", F.relu, torch.ones(3), backward=True))
    run = probe(tmp_path, f"--probe-dump={dump}", "--probe-out=out")
    said = (
        "default device meta, grad mode off, default dtype float64, autocast cpu bfloat16, "
        "deterministic algorithms on, "
        "fp32_precision of generic all tf32, fp32_precision of mkldnn all tf32, fp32_precision of mkldnn matmul bf16, "
        "fp32_precision of mkldnn conv tf32, fp32_precision of mkldnn rnn tf32, flush_denormal on, inference mode on"
    )
    assert f"probe: this process has set: {said}; references run without it" in run.stdout
    assert "2 passed" in run.stdout
    assert json.loads((tmp_path / "out" / "run.json").read_text())["devices"][0]["state"] == said


WAITS = """
import os

def pytest_configure(config):
    print("waits", os.environ.get("OMP_WAIT_POLICY"), os.environ.get("OMP_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("args", "set_by_user", "told"),
    [
        (["--probe-dump=dump.json"], {}, "waits PASSIVE None"),
        (["--probe-dump=dump.json"], {"OMP_NUM_THREADS": "2"}, "waits None 2"),
        (["--probe-dump=dump.json", "--probe-mode=acc,time"], {}, "waits None None"),
        ([], {}, "waits None None"),
    ],
)
def test_threads_wait_passively_where_dumps_run(
    pytester: pytest.Pytester,
    make_dump: DumpMaker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    set_by_user: dict[str, str],
    told: str,
) -> None:
    """It is set before conftests are loaded, which import frameworks."""
    for name in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that what the run sets is undone
        monkeypatch.delenv(name)
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    make_dump()
    pytester.makeconftest(WAITS)
    pytester.parseconfigure(*args)
    assert told in capsys.readouterr().out.splitlines()
