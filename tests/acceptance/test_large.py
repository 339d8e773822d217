"""Cases above --probe-flops: said before the run, judged by samples, said after it."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.conftest import Probed, backward, forward, tensor

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


X, WEIGHT, Y = tensor(128, 64), tensor(256, 64), tensor(128, 256)
DATA = {
    "Functional.linear.0.forward": forward(X, WEIGHT, output=Y),
    "Functional.linear.0.backward": backward(Y, X, WEIGHT),
    "Functional.relu.0.forward": forward(X, output=X),
}


def test_sampled_cases_are_announced_and_the_ini_file_sets_the_limit(pytester: pytest.Pytester, probed: Probed) -> None:
    pytester.makeini("[pytest]\nprobe_flops = 4e5\nprobe_reference_device = cpu\n")
    found = probed("-n1", data=DATA)
    found.result.assert_outcomes(passed=3)
    assert len([line for line in found.result.outlines if re.fullmatch(LINE, line)]) == 1
    outputs = {f"{name} {output['name']}": output for name, row in found.by_name.items() for output in row["outputs"]}
    shares = {name: output["metrics"].get("sampled") for name, output in outputs.items()}
    assert shares.pop("Functional.relu.0.forward output.0") is None
    assert sorted(name.split()[-1] for name in shares) == ["grad.input.0", "grad.input.1", "output.0"]
    assert all(0 < share < 1 for share in shares.values())
    settings = found.run["settings"]
    assert (settings["flops"], settings["reference_device"]) == (4e5, "cpu")


def test_a_wrong_element_that_checksums_point_at(probed: Probed) -> None:
    """Only selected cases are counted as sampled."""
    result = probed("--probe-flops=4e5", "--probe-direction=forward", data=DATA, conftest=CONFTEST).result
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines(
        [
            r"probe: 1 case takes more than 4e\+05 float64 operations .*",
            r"Functional.linear.0.forward in float32 by conftest.linear: error",
            r"output.0 \[128, 256\] float32: error \(noise\): off by 11, allowed [\d,.e+-]+; noise",
            r"  \[5, 7\] +10 .*",
            r"note: sampled: output.0: \d+\.\d\d% of its elements",
            r"to reproduce: pytest 'dump.json::Functional.linear.0.forward' --probe-flops=4e5",
        ]
    )
