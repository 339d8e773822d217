"""--probe-outputs: the comparison of two folders of outputs, an item a call and direction."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker, tensor
from tests.acceptance.conftest import forward as entry
from tests.support.csv_cells import lines
from tests.support.paddle_dumps import unpack, unpack_outputs, write_outputs
from tests.support.running import by_case, collected, refusal

X = np.linspace(-2, 2, 200, dtype=np.float32)
DUMP = {
    f"paddle.{name}*0": {
        "args": [
            {"type": "paddle.Tensor", "dtype": "FLOAT32", "shape": [200], "Max": 2, "Min": -2, "stop_gradient": True}
        ],
        "kwargs": {},
    }
    for name in ("exp", "sin", "cos", "tan", "neg")
}
TOLD = ("--probe-dump=dump.json", "--probe-outputs=device", "--probe-benchmark=benchmark")


@pytest.fixture
def sides(pytester: pytest.Pytester) -> None:
    """The device's exp is wrong, and one of tan's outputs, by which the tool only warns; neg gives a number; its cos is
    not there."""
    Path("dump.json").write_text(json.dumps(DUMP))
    device, benchmark = Path("device"), Path("benchmark")
    for name in ("exp", "sin", "cos", "neg"):
        write_outputs(benchmark, f"paddle.{name}*0", X)
    write_outputs(device, "paddle.exp*0", X * np.float32(1.5))
    write_outputs(device, "paddle.sin*0", X)
    write_outputs(device, "paddle.neg*0", 3)
    write_outputs(device, "paddle.tan*0", [X * np.float32(1.5), X * np.float32(1.0006)])
    write_outputs(benchmark, "paddle.tan*0", [X, X])


@pytest.mark.usefixtures("sides")
def test_an_item_a_call(pytester: pytest.Pytester) -> None:
    options = ("--probe-standard=paddleapex", "--junitxml=j.xml", "--probe-out=out", "--probe-device=recorded")
    result = pytester.runpytest(*TOLD, *options)
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "probe: outputs of 4 calls against 5, 4 on both sides",
            "output.0: error (paddleapex): 3, the benchmark has a tensor",
            "FAILED*tan*output.0: *",
        ]
    )
    verdicts = {name: each["verdict"] for name, each in by_case().items()}
    wanted = {"exp": "error", "sin": "pass", "cos": "skip", "tan": "error", "neg": "error"}
    assert verdicts == {f"paddle.{name}.0.forward": verdict for name, verdict in wanted.items()}
    junit = Path("j.xml").read_text()
    assert "paddle.exp.0.forward" in junit
    assert "only in the benchmark's outputs" in unescape(junit)
    failed = [name for name, verdict in wanted.items() if verdict == "error"]
    assert collected(pytester, *TOLD, "--lf") == [f"dump.json::paddle.{name}.0.forward" for name in failed]


def test_the_verdicts_are_those_of_the_command(pytester: pytest.Pytester, tmp_path: Path) -> None:
    gpt, standard = unpack_outputs(tmp_path), "paddleapex-documented"
    unpack("gpt_random_nodedup", pytester.path)
    main(["compare", str(gpt / "device"), str(gpt / "bench"), "--direct", f"--standard={standard}", "-o", "files"])
    wanted: dict[str, str] = {}
    for name, forward, backward, *_ in lines(Path("files"), "accuracy_checking_result")[1:]:
        wanted |= {f"{name.replace('*', '.')}.forward": forward, f"{name.replace('*', '.')}.backward": backward}
    told = (f"--probe-outputs={gpt / 'device'}", f"--probe-benchmark={gpt / 'bench'}")
    pytester.runpytest("--probe-dump=forward_rank0_all.json", *told, f"--probe-standard={standard}", "--probe-out=out")
    found = {name: each["verdict"] for name, each in by_case().items() if each["verdict"] != "skip"}
    assert len(found) > 40
    assert found == {name: status for name, status in wanted.items() if status in ("pass", "warning", "error")}


@pytest.mark.usefixtures("sides")
def test_outputs_of_another_dump_are_refused(pytester: pytest.Pytester) -> None:
    for count in (1, 2):
        others = {f"paddle.abs*{number}": DUMP["paddle.exp*0"] for number in range(4)}
        Path("dump.json").write_text(json.dumps({**others, **dict(list(DUMP.items())[: count - 1])}))
        wanted = f"--probe-outputs: '*device' *it has outputs of {count - 1} of the dump's {count + 3} calls*"
        refusal(pytester, *TOLD).fnmatch_lines([wanted])
    Path("dump.json").write_text(json.dumps(dict(list(DUMP.items())[:1])))
    result = pytester.runpytest(*TOLD)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["probe: 4 of them are in no dump of this run, and are not compared"])


def test_outputs_of_two_dumps(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    pytest.importorskip("torch")
    x = tensor(20, 20)
    for name in ("a", "b"):
        make_dump(name, data={"Torch.exp.0.forward": entry(x, output=x)})
    run = ("--probe-dump=a", "--probe-dump=b")
    pytester.runpytest(*run, "--probe-save=all", "--probe-out=device")
    result = pytester.runpytest(*run, "--probe-outputs=device", "--probe-benchmark=device", "--probe-standard=exact")
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (("--probe-outputs=device",), "it needs another option: add --probe-benchmark=DIR"),
        ((TOLD[2],), "give a folder of --probe-out, or add --probe-outputs=DIR"),
        ((*TOLD[1:], "--probe-device=cpu"), "no device runs; leave it out"),
        ((*TOLD[1:], "--probe-standard=noise"), "--probe-standard"),
        (("--probe-outputs=nothing", TOLD[2]), "--probe-outputs*it holds no output/"),
        ((TOLD[1], "--probe-benchmark=nothing"), "--probe-benchmark*it holds no output/"),
    ],
)
@pytest.mark.usefixtures("sides")
def test_what_does_not_go_together(pytester: pytest.Pytester, told: tuple[str, ...], words: str) -> None:
    Path("nothing").mkdir()
    refusal(pytester, TOLD[0], *told).fnmatch_lines([f"*{words}*"])
