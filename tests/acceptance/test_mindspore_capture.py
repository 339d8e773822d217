"""Training steps of MindSpore on its CPU: recorded, replayed, and judged as recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installed import needs_mindspore

pytestmark = [pytest.mark.mindspore, pytest.mark.slow, needs_mindspore]

PROGRAM = """
import sys
from benchmarks.capture_overhead import SIZES
from benchmarks.overhead import mindspore as models
name = sys.argv[1]
step = models.training(*SIZES["tiny GPT"]) if name == "GPT" else models.OTHERS[name]()
for _ in range(3):
    print(step().tobytes().hex())
"""
CAPTURE = ("-c", "import sys; from pytest_probe.cli import main; sys.exit(main())", "capture")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    (made / "program.py").write_text(PROGRAM)
    return made


def ran(folder: Path, *way: str) -> list[str]:
    """The lines that the program printed: the bytes of its losses."""
    done = subprocess.run([sys.executable, *way], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[:3]


def judged(folder: Path, dump: str, device: str) -> dict[str, tuple[str, str]]:
    """The verdict and the kind of each item."""
    options = ("-q", f"--probe-dump={dump}", f"--probe-device={device}", f"--probe-out={dump}-{device}")
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    lines = (folder / f"{dump}-{device}" / "results.jsonl").read_text().splitlines()
    return {each["id"].partition("::")[2]: (each["verdict"], each["kind"]) for each in map(json.loads, lines)}


@pytest.mark.parametrize("name", ["MLP", "GPT", "CNN"])
def test_a_training_step(folder: Path, name: str) -> None:
    plain = ran(folder, "program.py", name)
    assert len(set(plain)) == 3
    for task in ("statistics", "tensor"):
        dump = f"{name}-{task}"
        assert ran(folder, *CAPTURE, "-o", dump, f"--task={task}", "program.py", name) == plain
        replayed = judged(folder, dump, "CPU")
        assert set(replayed.values()) == {("pass", "")}
    recorded = judged(folder, f"{name}-tensor", "recorded")
    of_directions: dict[str, set[tuple[str, str]]] = {"forward": set(), "backward": set()}
    for item, found in recorded.items():
        of_directions[item.rpartition(".")[2]].add(found)
    # The gradients of arguments are not recorded: a wrong one, as mint.split's, is not seen here.
    assert of_directions == {"forward": {("pass", "")}, "backward": {("skip", "no stored tensors")}}


COMPILED = """
import mindspore
import numpy as np
class Net(mindspore.nn.Cell):
    def construct(self, x):
        return mindspore.mint.sin(x) + 1
mindspore.set_context(mode=mindspore.GRAPH_MODE)
print(Net()(mindspore.Tensor(np.zeros(1, np.float32))).asnumpy())
"""
REFUSED = """
import mindspore
from pytest_probe import PrecisionDebugger
from pytest_probe.errors import SettingsError
def tried(**options):
    try:
        PrecisionDebugger(framework="mindspore", **options).start()
    except SettingsError as error:
        print(error)
open("file", "w").close()
tried(dump_path="out", level="mix")
tried(dump_path="out", levels="L1")
tried(dump_path="out", level="L2")
tried(dump_path="file/out")
"""


def test_a_program_in_graph_mode_is_a_failed_capture(folder: Path) -> None:
    (folder / "compiled.py").write_text(COMPILED)
    command = [sys.executable, *CAPTURE, "-o", "compiled", "compiled.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "[1.]\n")
    unseen = "Net is compiled, and what it calls is not recorded; run the program in PyNative mode, without jit, to"
    assert f"pytest-probe: nothing was recorded: {unseen} record it" in done.stderr.splitlines()


def test_what_cannot_be_used_is_refused_at_the_start(folder: Path) -> None:
    (folder / "refused.py").write_text(REFUSED)
    command = [sys.executable, "refused.py"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    model, key, level, place = done.stdout.splitlines()
    assert "model" in model
    assert "unknown key 'levels'; did you mean 'level'?" in key
    assert "it is msprobe's dump of Ascend kernels, and a recording does not have it; level L1 records" in level
    assert "give a folder that can be written" in place
