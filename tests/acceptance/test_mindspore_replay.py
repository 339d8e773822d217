"""Dumps of MindSpore, replayed on its CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe import frameworks
from tests.support.installed import needs_mindspore
from tests.support.mindspore_dumps import packed, split_of_three, write
from tests.support.running import refusal

pytestmark = [pytest.mark.mindspore, needs_mindspore]
if not frameworks.unavailable("mindspore"):  # it cannot be imported a second time in one process
    frameworks.load("mindspore")

Results = dict[str, dict[str, Any]]
FLOATS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def run(pytester: pytest.Pytester, dump: Path, *args: str) -> Results:
    pytester.runpytest(f"--probe-dump={dump}", "--probe-out=out", *args)
    lines = (pytester.path / "out/results.jsonl").read_text().splitlines()
    return {found["id"].partition("::")[2]: found for found in map(json.loads, lines)}


def counted(results: Results) -> Counter[tuple[str, str]]:
    return Counter((found["verdict"], found["kind"]) for found in results.values())


def of_calls(pytester: pytest.Pytester, *args: str, **calls: list[Any]) -> Results:
    """The results of calls of `mindspore.mint` on these arguments."""
    entries = {
        f"Mint.{name}.0.forward": {"input_args": values, "input_kwargs": {}, "output": []}
        for name, values in calls.items()
    }
    for entry in entries.values():
        del entry["output"]
    return run(pytester, write(pytester.path / "calls", entries), *args)


@pytest.mark.parametrize("name", ["mlp", "mlp-1.2.2", "mlp-statistics", "mlp-md5_statistics", "mlp-mix_statistics"])
def test_a_real_step(pytester: pytest.Pytester, name: str) -> None:
    assert counted(run(pytester, packed(name))) == {("pass", ""): 38}


def test_in_workers(pytester: pytest.Pytester) -> None:
    assert counted(run(pytester, packed("mlp"), "-n", "2")) == {("pass", ""): 38}


def test_bfloat16_and_keywords(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("kwargs-bf16"))
    # MindSpore 2.10.0 gives the result of add_ on the CPU, and leaves its argument as it was.
    (wrong,) = (name for name, each in found.items() if each["verdict"] != "pass")
    assert wrong == "Tensor.add_.0.forward"
    outputs = {output["name"]: output["verdict"] for output in found[wrong]["outputs"]}
    assert outputs == {"output.0": "pass", "input.0": "error"}


def test_gradients_of_lists_keywords_and_indices(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("cells"))
    assert {each["verdict"] for each in found.values()} == {"pass", "skip"}
    # ops.tile takes a tuple, which a dump does not tell from a list.
    for name in (
        "Functional.tile.0.backward",
        "Mint.add.0.backward",
        "Mint.gather.0.backward",
        "Mint.split.0.backward",
        "Mint.mul.0.backward",
    ):
        assert found[name]["verdict"] == "pass"
    assert [output["name"] for output in found["Mint.add.0.backward"]["outputs"]] == [
        "grad.kwargs.input",
        "grad.kwargs.other",
    ]


def test_the_dump_that_was_written_by_hand(pytester: pytest.Pytester) -> None:
    found = run(pytester, packed("edge"))
    assert Counter(each["verdict"] for each in found.values()) == {"pass": 7, "skip": 15}


def test_a_wrong_function_on_the_device_is_found(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        def pytest_probe_register(registry):
            from mindspore import mint
            registry.calls["Mint.log"] = lambda x: mint.log(x) * 1.001
            registry.calls["MintFunctional.linear"] = lambda x, w, b: mint.nn.functional.linear(x, w)
        """
    )
    found = run(pytester, packed("mlp"))
    wrong = {name for name, each in found.items() if each["verdict"] == "error"}
    assert wrong == {
        *("Mint.log.0.forward", "Mint.log.0.backward"),
        *(f"MintFunctional.linear.{number}.{way}" for number in (0, 1) for way in ("forward", "backward")),
    }


def test_what_has_no_kernel_is_skipped_and_the_next_call_is_judged(pytester: pytest.Pytester) -> None:
    found = of_calls(pytester, atan2=[FLOATS, FLOATS], sin=[FLOATS], einsum=["ij->i", FLOATS], neg=[FLOATS])
    assert {name: (each["verdict"], each["kind"]) for name, each in found.items()} == {
        "Mint.atan2.0.forward": ("skip", "unsupported by the device"),
        "Mint.sin.0.forward": ("pass", ""),
        "Mint.einsum.0.forward": ("skip", "unsupported by the device"),
        "Mint.neg.0.forward": ("pass", ""),
    }
    assert "The kernel Atan2Ext unregistered" in found["Mint.atan2.0.forward"]["reason"]


def test_bfloat16_without_a_kernel(pytester: pytest.Pytester) -> None:
    found = of_calls(pytester, "--probe-dtype=bfloat16", matmul=[FLOATS, FLOATS.T], add=[FLOATS, FLOATS])
    assert [each["verdict"] for each in found.values()] == ["skip", "pass"]
    assert "Select CPU operator" in found["Mint.matmul.0.forward[bfloat16]"]["reason"]


def test_a_split_that_gets_its_gradients_in_order_is_right(pytester: pytest.Pytester) -> None:
    found = run(pytester, write(pytester.path / "split", split_of_three(strides_ignored=True)))
    assert counted(found) == {("pass", ""): 2}


@pytest.mark.parametrize("device", ["cpu", "CPU"])
def test_the_cpu_has_mindspores_name(pytester: pytest.Pytester, device: str) -> None:
    found = run(pytester, packed("kwargs-bf16"), f"--probe-device={device}", "--probe-api=Mint.sum")
    assert [each["device"] for each in found.values()] == ["CPU"]


def test_a_device_that_is_not_there(pytester: pytest.Pytester) -> None:
    said = refusal(pytester, f"--probe-dump={packed('mlp')}", "--probe-device=Ascend")
    said.fnmatch_lines(["*--probe-device: 'Ascend' cannot be used; MindSpore says: Unsupported device*"])


def test_statistics_have_the_rows_of_the_checker(pytester: pytest.Pytester) -> None:
    run(pytester, packed("mlp-statistics"), "--probe-standard=mindspore")
    (details,) = (pytester.path / "out").glob("accuracy_checking_details_*.csv")
    rows = details.read_text(encoding="utf-8-sig").splitlines()
    # The tool has none of tensors in a list.
    assert sum(row.startswith("Mint.cat.0.backward") for row in rows) == 2
    assert len(rows) == 33 + 1 + 2


def test_nothing_is_on_stderr_and_the_order_of_imports_is_said() -> None:
    program = "from pytest_probe import frameworks; frameworks.load('mindspore').device('CPU')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    program = (
        "import sys, types; sys.modules['paddle'] = types.ModuleType('paddle')\n"
        "from pytest_probe import errors, frameworks\n"
        "try:\n    frameworks.load('mindspore')\n"
        "except errors.Unsupported as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Paddle was imported before MindSpore, which then cannot be: run their dumps apart\n"
