"""Cases above --probe-flops: said before the run, judged by samples, said after it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.conftest import DumpMaker, backward, forward, tensor

LINE = r"probe: 2 cases take more than 4e\+05 float64 operations \(--probe-flops\): judged by samples$"

# The device's linear is off by 1 % in one element.
CONFTEST = """
    import torch

    def linear(*args):
        y = torch.nn.functional.linear(*args).clone()
        y[5, 7] = 10.0
        return y

    def pytest_probe_register(registry):
        registry.calls["Functional.linear"] = linear
"""


def make_large(make_dump: DumpMaker) -> Path:
    x, weight, y = tensor(128, 64), tensor(256, 64), tensor(128, 256)
    data = {
        "Functional.linear.0.forward": forward(x, weight, output=y),
        "Functional.linear.0.backward": backward(y, x, weight),
        "Functional.relu.0.forward": forward(x, output=x),
    }
    return make_dump(data=data)


def test_sampled_cases_are_announced(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_large(make_dump)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-flops=4e5", "--probe-out=out", "-n1")
    result.assert_outcomes(passed=3)
    assert len([line for line in result.outlines if re.fullmatch(LINE, line)]) == 1
    lines = map(json.loads, Path("out/results.jsonl").read_text().splitlines())
    outputs = {f"{found['id']} {output['name']}": output for found in lines for output in found["outputs"]}
    shares = {name: output["metrics"].get("sampled") for name, output in outputs.items()}
    assert shares.pop("dump.json::Functional.relu.0.forward output.0") is None
    assert sorted(name.split()[-1] for name in shares) == ["grad.input.0", "grad.input.1", "output.0"]
    assert all(0 < share < 1 for share in shares.values())
    run = json.loads(Path("out/run.json").read_text())
    assert (run["settings"]["flops"], run["settings"]["reference_device"]) == (4e5, "cpu")


def test_nothing_is_said_where_nothing_is_sampled(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_large(make_dump)
    for flops in ("inf", "5e6"):
        result = pytester.runpytest("--probe-dump=dump.json", f"--probe-flops={flops}")
        result.assert_outcomes(passed=3)
        result.stdout.no_fnmatch_line("*judged by samples*")


def test_only_selected_cases_are_counted_as_sampled(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_large(make_dump)
    one = pytester.runpytest("--probe-dump=dump.json", "--probe-flops=4e5", "--probe-direction=forward")
    one.stdout.fnmatch_lines(["probe: 1 case takes more than 4e+05 float64 operations *"])
    none = pytester.runpytest("--probe-dump=dump.json", "--probe-flops=4e5", "--probe-api=relu")
    none.stdout.no_fnmatch_line("*judged by samples*")


def test_a_wrong_element_that_checksums_point_at(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_large(make_dump)
    pytester.makeconftest(CONFTEST)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-flops=4e5", "--probe-direction=forward")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines(
        [
            r"Functional.linear.0.forward in float32 by conftest.linear: error",
            r"output.0 \[128, 256\] float32: error \(noise\): off by 11, allowed [\d,.e+-]+; noise",
            r"  \[5, 7\] +10 .*",
            r"note: sampled: output.0: \d+\.\d\d% of its elements",
            r"to reproduce: pytest 'dump.json::Functional.linear.0.forward' --probe-flops=4e5",
        ]
    )


def test_the_ini_file_sets_the_limit_of_operations(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_large(make_dump)
    pytester.makeini("[pytest]\nprobe_flops = 4e5\nprobe_reference_device = cpu\n")
    pytester.runpytest("--probe-dump=dump.json").stdout.re_match_lines([LINE])
