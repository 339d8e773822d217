from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_probe.capture.children import followed
from pytest_probe.capture.ranks import keep_rank, named_rank
from tests.support.pages import ROOT

pytestmark = pytest.mark.slow
COMMAND = ("-c", "from pytest_probe.cli import main; raise SystemExit(main())", "capture")
SITE = """
import sys
print("own site", "pytest_probe" in sys.modules, any("startup" in path for path in sys.path))
"""
# What each process does, and whether torch's calls in it are recorded.
LOADERS = """
import multiprocessing, sys, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return torch.full((2,), index).tanh()
def work(): torch.zeros(5)
if __name__ == "__main__":
    for how in ("spawn", "forkserver", "fork"):
        print(list(torch.utils.data.DataLoader(Data(), 2, num_workers=1, multiprocessing_context=how)))
        process = multiprocessing.get_context(how).Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
"""
SPAWNED = """
import sys, torch
torch.ones(2)
def work(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
"""
STARTER = """
import os, subprocess, sys
def start(*args, **variables):
    return subprocess.run([sys.executable, *args], env={**os.environ, **variables}).returncode
ONES = "import torch; torch.ones(2)"
"""


def environment(**variables: str) -> dict[str, str]:
    """Without what a capture around this run has set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_PROBE_")}
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **variables}


def captured(
    folder: Path, text: str, *args: str, status: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, *COMMAND, *args, "train.py", str(folder)]
    given = environment(**variables)
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=200)
    assert status in (None, done.returncode), done.stderr
    return done


def calls(folder: Path, step: int = 0) -> dict[str, list[str]]:
    """The calls of each process by the name of its folder."""
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob(f"dumps/step{step}/*/dump.json")}
    return {name: list(dump["data"]) for name, dump in found.items()}


def test_processes_of_multiprocessing_record_but_no_loader_of_data(tmp_path: Path) -> None:
    done = captured(tmp_path, LOADERS)
    found = list(calls(tmp_path).values())
    assert sum(each == ["Torch.zeros.0.forward"] for each in found) == 2  # spawn and forkserver
    assert len(found) == 3
    assert not any("tanh" in name for each in found for name in each)
    assert "recorded 2 processes that the program started: dumps" in done.stderr


def test_spawned_ranks_get_the_names_of_ranks_once_they_know_them(tmp_path: Path) -> None:
    captured(tmp_path, SPAWNED, "--task=tensor", "--step=all")
    for step in (0, 1):
        found = calls(tmp_path, step)
        assert {"rank0", "rank1"} == found.keys() - {name for name in found if name.startswith("proc")}
        assert [found[rank].count("Functional.linear.0.forward") for rank in ("rank0", "rank1")] == [1, 1]
        for rank in ("rank0", "rank1"):
            folder = tmp_path / f"dumps/step{step}/{rank}"
            head = json.loads((folder / "dump.json").read_text())
            assert head["dump_data_dir"] == str(folder / "dump_tensor_data")
            assert (folder / "dump_tensor_data" / "Functional.linear.0.forward.output.0.pt").is_file()


def test_a_rank_and_what_it_starts_write_apart(tmp_path: Path) -> None:
    text = STARTER + "import torch; start('-c', ONES); torch.zeros(2); start('-c', ONES, RANK='1')"
    captured(tmp_path, text, RANK="0", WORLD_SIZE="2")
    found = calls(tmp_path)
    assert (found.pop("rank0"), found.pop("rank1")) == (["Torch.zeros.0.forward"], ["Torch.ones.0.forward"])
    ((other, ones),) = found.items()
    assert other.startswith("proc")
    assert ones == ["Torch.ones.0.forward"]


def test_two_processes_of_one_rank_write_apart_and_one_that_records_by_itself_is_recorded_once(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("import torch; torch.zeros(2)")
    text = STARTER + f"start(*{COMMAND!r}, '-o', 'inner', 'inner.py')\n"
    done = captured(tmp_path, text + "for _ in range(2): start('-c', ONES, RANK='0', WORLD_SIZE='1')")
    assert list(calls(tmp_path).values()) == [["Torch.ones.0.forward"]] * 2
    assert "rank0" in calls(tmp_path)
    (inner,) = tmp_path.glob("inner/step0/*/dump.json")
    assert list(json.loads(inner.read_text())["data"]) == ["Torch.zeros.0.forward"]
    assert "another capture" not in done.stderr


def test_statuses_signals_and_isolated_processes_stay_as_they_are(tmp_path: Path) -> None:
    text = STARTER + (
        "print(start('-c', ONES + '; raise SystemExit(3)'), start('-c', 'import os; os.kill(os.getpid(), 15)'))\n"
        "print(start('-c', ONES + '; import os; os.kill(os.getpid(), 9)'))\n"
        "start('-I', '-c', ONES); start('-S', '-c', '1')\n"
        "start('-c', ONES, PYTHONPATH=''); start('-c', ONES, PYTEST_PROBE_CAPTURE_CHILDREN='{')\n"
    )
    done = captured(tmp_path, text, status=None)
    assert done.stdout.split() == ["3", "-15", "-9"]
    # Those that ended by themselves or were killed; a killed one may have written nothing.
    assert list(calls(tmp_path).values())[:1] == [["Torch.ones.0.forward"]]
    assert len(calls(tmp_path)) <= 2
    broken = "pytest-probe: this process is not recorded (JSONDecodeError"
    assert done.stderr.count(broken) == done.stderr.count("this process is not recorded") == 1


def test_a_sitecustomize_of_the_users_own_runs_as_before(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    show = "import sitecustomize, sys; print(sitecustomize.__file__, [path for path in sys.path if path])"
    paths = f"{tmp_path / 'site'}{os.pathsep}{environment()['PYTHONPATH']}"
    plain = subprocess.run(
        [sys.executable, "-c", show], env=environment(PYTHONPATH=paths), capture_output=True, text=True, check=True
    )
    done = captured(tmp_path, STARTER + f"start('-c', {show!r}); start('-c', ONES)", status=None, PYTHONPATH=paths)
    assert plain.stdout.splitlines()[0] == "own site False False"
    # Its own process, which shows no path, and two that it starts.
    lines = done.stdout.splitlines()
    assert lines[0] == plain.stdout.splitlines()[0]
    assert lines[1] == lines[3] == "own site True False"
    assert lines[2] == plain.stdout.splitlines()[1]
    assert list(calls(tmp_path).values()) == [["Torch.ones.0.forward"]]


def test_a_python_of_another_environment_is_left_alone(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYTEST_PROBE_CAPTURE_CHILDREN"):
            patch.setenv(name, "")
        with followed({"modules": ["json"], "config": None, "options": {"dump_path": str(tmp_path)}}):
            told = json.loads(os.environ["PYTEST_PROBE_CAPTURE_CHILDREN"])
            started = environment(PYTHONPATH=os.environ["PYTHONPATH"])
        assert os.environ["PYTHONPATH"] == ""
    assert told["python"] == [sys.prefix, sys.version]
    started["PYTEST_PROBE_CAPTURE_CHILDREN"] = json.dumps({**told, "python": ["/other", sys.version]})
    show = "import sys; print('pytest_probe' in sys.modules, 'sitecustomize' in sys.modules, len(sys.meta_path))"
    plain = subprocess.run([sys.executable, "-c", show], env=environment(), capture_output=True, text=True)
    other = subprocess.run([sys.executable, "-c", show], env=started, capture_output=True, text=True)
    assert (other.stdout, other.stderr) == (plain.stdout, "")


def test_a_folder_of_notes_that_is_gone_is_of_nobody() -> None:
    with followed({"modules": ["json"]}) as recorded:
        shutil.rmtree(json.loads(os.environ["PYTEST_PROBE_CAPTURE_CHILDREN"])["note"])
        assert recorded() == 0


def test_what_was_not_followed_is_told_how_it_is_recorded(tmp_path: Path) -> None:
    fork = (
        "import os, torch\nif os.fork() == 0:\n    [torch.ones(2) for _ in range(40_000)]\n    os._exit(0)\nos.wait()"
    )
    done = captured(tmp_path, fork, status=1)
    assert done.stderr.startswith("pytest-probe: nothing was recorded: the program made no call that is asked for")
    assert done.stderr.endswith("as in: torchrun --no-python pytest-probe capture train.py\n")


def test_a_number_is_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(**variables: str) -> tuple[int | None, int]:
        for name in ("RANK", "WORLD_SIZE", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "SLURM_PROCID", "SLURM_NTASKS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return named_rank()

    monkeypatch.setenv("PYTEST_PROBE_CAPTURE_RANK", "")
    assert named() == (None, 1)
    assert named(SLURM_PROCID="0", SLURM_NTASKS="1") == (None, 1)
    assert named(PADDLE_TRAINER_ID="1", PADDLE_TRAINERS_NUM="2") == (1, 2)
    assert named(RANK="3") == (3, 1)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
    assert named(**slurm) == (1, 4)
    keep_rank()
    assert named(**slurm) == (1, 4)
    monkeypatch.setenv("PYTEST_PROBE_CAPTURE_RANK", "SLURM_PROCID=1 0")
    assert named(**slurm) == (None, 1)
    # A task starts ranks of its own.
    assert named(RANK="1", WORLD_SIZE="2", **slurm) == (1, 2)
