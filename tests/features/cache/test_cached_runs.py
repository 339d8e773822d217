"""--probe-cache: the second run computes no reference again, and finds what the first one found."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.errors import SettingsError
from pytest_probe.features.cache import plugin as cache
from pytest_probe.features.cache.folder import Part
from pytest_probe.frameworks.python import calls
from pytest_probe.settings import parse
from tests.support import forks
from tests.support.running import ran, timeless
from tests.support.writing import entries, write_dump

pytestmark = pytest.mark.usefixtures("forked")

RUN = ("--probe-dump=dump.json", "--probe-device=cpu")
# Each reference that is computed leaves a line, and is kept however little time it took; KILLED ends the process once.
COUNTING = """
    import os, pathlib, signal
    from pytest_probe.features.cache import plugin as cache
    from pytest_probe.features.cache.folder import Part
    from pytest_probe.frameworks.python import calls

    cache._MIN_SECONDS_TO_CACHE = 0.0
    run, finish = calls.PythonCalls.run, Part.finish

    def counted(self, function, arguments, way, wanted=None):
        if way.dtype:
            with open("computed", "a") as file:
                file.write(f"{way.dtype}\\n")
        return run(self, function, arguments, way, wanted)

    def finished(self, path):
        marker = pathlib.Path("killed")
        if os.environ.get("KILLED") and len(list(path.parent.glob("*.reference"))) == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return finish(self, path)

    # Functions of others are kept out of the cache: this one counts as this package's.
    counted.__code__ = counted.__code__.replace(co_filename=calls.__file__)
    calls.PythonCalls.run, Part.finish = counted, finished
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dump of three calls with their backward, and in out/ the results of a run without a cache."""
    folder = tmp_path_factory.mktemp("without")
    x = torch.randn((2, 64, 64), generator=torch.Generator().manual_seed(0))
    data = {
        **entries("Torch.matmul.0", torch.matmul, x, x, backward=True),
        **entries("Functional.softmax.0", F.softmax, x, -1, backward=True),
        **entries("Functional.gelu.0", F.gelu, x, backward=True),
    }
    write_dump(folder, data)
    assert ran(folder, *RUN, "--probe-out=out").result.ret == 0
    return folder


@pytest.fixture(autouse=True)
def expected(pytester: pytest.Pytester, without: Path) -> dict[str, dict[str, Any]]:
    """What that run found. The test has its own copy of the dump."""
    shutil.copy(without / "dump.json", pytester.path)
    pytester.makeconftest(COUNTING)
    return timeless(without / "out")


def run_here(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """A run in this process; what COUNTING replaces is put back."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((calls.PythonCalls, "run"), (Part, "finish"), (cache, "_MIN_SECONDS_TO_CACHE")):
            patch.setattr(owner, name, getattr(owner, name))
        return pytester.runpytest(*args)


def computed(pytester: pytest.Pytester) -> int:
    """References that were computed since it was asked last."""
    path = pytester.path / "computed"
    found = len(path.read_text().splitlines()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return found


def test_the_second_run_computes_no_reference(pytester: pytest.Pytester, expected: dict[str, dict[str, Any]]) -> None:
    def run(out: str, *args: str) -> dict[str, Any]:
        run_here(pytester, *RUN, f"--probe-out={out}", "-n1", *args).assert_outcomes(passed=6)
        return timeless(out)

    assert run("first", "--probe-cache=cache") == expected
    assert computed(pytester) > 12
    assert run("second", "--probe-cache=cache") == expected
    assert computed(pytester) == 0


def test_a_kill_and_two_runs_at_once_leave_a_good_cache(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, expected: dict[str, dict[str, Any]]
) -> None:
    monkeypatch.setenv("KILLED", "1")
    assert pytester.runpytest_subprocess(*RUN, "--probe-cache=cache").ret == -signal.SIGKILL
    suffixes = sorted(path.suffix for path in (pytester.path / "cache").iterdir())
    assert suffixes == [".part", ".reference", ".reference"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["-m", "pytest", *RUN, "--probe-cache=cache"]
    both = [forks.Program([*command, f"--probe-out=both{number}"], pytester.path, environment) for number in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    computed(pytester)
    # A process of its own, as the others: what this one's other tests left is part of what a reference depends on.
    assert pytester.runpytest_subprocess(*RUN, "--probe-cache=cache", "--probe-out=after").ret == 0
    assert computed(pytester) == 0
    for folder in ("both0", "both1", "after"):
        assert timeless(folder) == expected


def test_the_cache_stays_below_its_size(pytester: pytest.Pytester) -> None:
    run_here(pytester, *RUN, "--probe-cache=cache,size=500kB").assert_outcomes(passed=6)
    sizes = [path.stat().st_size for path in (pytester.path / "cache").iterdir()]
    assert 0 < sum(sizes) <= 500_000


def test_a_check_of_a_kernel_uses_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        @pytest.mark.probe(dump="dump.json", api="Functional.gelu")
        def test_gelu(probe_case):
            (x,) = probe_case.args
            probe_case.check(0.5 * x * (1 + torch.erf(x / 2**0.5)))
        """
    )
    args = ("test_a_check_of_a_kernel_uses_it.py", "--probe-device=cpu")
    found = []
    for _ in range(2):
        run_here(pytester, *args, "--probe-cache=cache").assert_outcomes(passed=1)
        found.append(computed(pytester))
    assert found[1] < found[0]


@pytest.mark.parametrize(("text", "size"), [("10GB", 10**10), ("1.5 GB", 15 * 10**8), ("64kB", 64_000), ("7B", 7)])
def test_sizes_of_the_cache_are_parsed(pytester: pytest.Pytester, text: str, size: int) -> None:
    (pytester.path / "conftest.py").unlink()
    settings = parse(pytester.parseconfig(f"--probe-cache=cache,size={text}"), paths_given=False)
    assert settings.cache == (pytester.path / "cache", size)


def test_a_size_that_is_refused_makes_no_folder(pytester: pytest.Pytester) -> None:
    (pytester.path / "conftest.py").unlink()
    with pytest.raises(SettingsError, match="give a size"):
        parse(pytester.parseconfig("--probe-cache=new,size=10"), paths_given=False)
    assert not (pytester.path / "new").exists()
