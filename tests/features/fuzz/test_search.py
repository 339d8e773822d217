"""Searches for planted faults, and among healthy kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from benchmarks.fuzzing.faults import FAULTS, Fault
from benchmarks.fuzzing.running import checker, found, search, size, trials
from pytest_probe import frameworks
from pytest_probe.check import Checker
from pytest_probe.features.fuzz.findings import SearchResult, search_result, verdict_of
from pytest_probe.features.fuzz.search import Effort, Search
from pytest_probe.features.fuzz.templates import Pattern, Template, TensorSlot, table, template_from_table
from pytest_probe.features.fuzz.trial import exact_elements
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.result import AnnouncedCall, FatalCall
from pytest_probe.model.run import Arguments, Leaf

# One search each takes seconds; benchmarks/fuzz_faults.py makes ten, and those of the others.
QUICK = [fault for fault in FAULTS if fault.smallest is not None and fault.smallest <= 2]


@pytest.mark.evidence
@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_shrunk(fault: Fault, device: str) -> None:
    (findings,) = found(fault, device, [1], 200)
    assert findings.failed is not None
    assert fault.smallest is not None
    assert size(fault, device, findings) <= 2 * fault.smallest


@pytest.mark.evidence
@pytest.mark.parametrize(
    "api", ["Functional.softmax", "Torch.exp", "Functional.linear", "Functional.embedding", "Torch.sin", "Torch.pow"]
)
def test_healthy_kernels_have_no_findings(api: str) -> None:
    findings = search(checker(), api, "float32", 60, seed=3)
    assert findings.failed is None
    assert not findings.contracts
    assert findings.examples >= 60


def result(checker: Checker, api: str, examples: int = 200) -> SearchResult:
    """All that a search by the table finds in the forward, with a fixed seed."""
    template = template_from_table(api, frameworks.signatures(), ("float32",))
    return search_result(trials(checker, api, ("forward",)), [template], Effort(examples, seed=1), checker)


def printed(script: str, folder: Path) -> str:
    file = folder / "again.py"
    file.write_text(script, encoding="utf-8")
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, cwd=folder)
    return run.stdout


def test_the_script_of_a_finding_needs_the_framework_alone(tmp_path: Path) -> None:
    fault = FAULTS[1]
    found = result(checker(fault.api, fault.kernel), fault.api)
    verdict = verdict_of(found, "auto", strict=False)
    assert verdict.verdict == "error"
    assert verdict.reason.startswith("log1p(float32[")
    assert found.numbers is not None
    assert printed(found.numbers.script, tmp_path).startswith("actual\n")
    assert len(found.numbers.script.splitlines()) < 30


def test_a_broken_contract_is_shrunk_and_fails_under_strict_alone() -> None:
    def in_order(input: torch.Tensor) -> torch.Tensor:
        return input.exp().contiguous()

    found = result(checker("Torch.exp", in_order), "Torch.exp")
    assert found.numbers is None
    (contract,) = found.contracts
    assert "strides" in contract.verdict.reason
    # As small as any call whose strides differ.
    assert contract.arguments.args[0].array.shape == (2, 2)
    assert not contract.arguments.args[0].array.any()
    assert verdict_of(found, "auto", strict=False).verdict == "pass"
    assert verdict_of(found, "auto", strict=True).verdict == "error"


def test_a_search_whose_calls_are_all_rejected_is_a_skip() -> None:
    slots = {name: TensorSlot(Pattern.of("3 4")) for name in ("input", "other")}
    template = Template("Torch.mm", frameworks.signatures(), slots)
    judging = trials(checker(), "Torch.mm", ("forward",))
    verdict = verdict_of(search_result(judging, [template], Effort(20), judging.checker), "auto", strict=False)
    assert verdict.verdict == "skip"
    assert "rejects every call that was drawn" in verdict.reason
    assert "mat1 and mat2" in verdict.reason


def test_each_call_is_announced_in_each_direction_and_no_call_is_made_twice() -> None:
    told: list[str] = []

    def announced(call: AnnouncedCall) -> AbstractContextManager[None]:
        told.append(str(call))
        return nullcontext()

    template = template_from_table("Functional.softmax", frameworks.signatures(), ("float32",))
    judging = replace(trials(checker(), "Functional.softmax"), announced=announced)
    assert Search(judging, [template]).run(Effort(100, seed=1)).examples == 100
    assert len(set(told)) == len(told) == 200
    assert told[0].startswith("softmax(float32[")
    assert told[1] == f"{told[0]}, backward"


def test_an_exception_of_our_own_is_told_as_it_is() -> None:
    """Hypothesis makes its call again, where it has to be raised again."""
    made = 0

    @contextmanager
    def announced(call: AnnouncedCall) -> Iterator[None]:
        nonlocal made
        made += 1
        if made >= 5:
            raise ZeroDivisionError("ours")
        yield

    template = template_from_table("Functional.softmax", frameworks.signatures(), ("float32",))
    judging = replace(trials(checker(), "Functional.softmax", ("forward",)), announced=announced)
    with pytest.raises(ZeroDivisionError, match="ours"):
        Search(judging, [template]).run(Effort(50, seed=1))


def test_a_call_that_ended_a_process_is_passed_over(tmp_path: Path) -> None:
    keys: list[AnnouncedCall] = []

    @contextmanager
    def announced(call: AnnouncedCall) -> Iterator[None]:
        keys.append(call)
        yield

    judging = replace(trials(checker(), "Torch.tan"), announced=announced)
    templates, effort = [template_from_table("Torch.tan", frameworks.signatures(), ("float32",))], Effort(20, seed=1)
    search_result(judging, templates, effort, judging.checker)
    fatal = next(call for call in keys if call.direction == "backward")
    dead = FatalCall("table::Torch.tan.fuzz", fatal, "the process died", "crash")
    made = keys.copy()
    keys.clear()
    again = search_result(replace(judging, fatal={fatal.key: dead}, met={}), templates, effort, judging.checker)
    assert [call for call in made if call.key != fatal.key] == keys
    (death,) = again.deaths
    verdict = verdict_of(again, "auto", strict=False)
    assert (verdict.verdict, verdict.kind, verdict.reason) == ("error", "crash", f"{death}: the process died")
    assert printed(death.script, tmp_path).startswith("actual\n")


def test_a_reference_of_the_project_that_raises_is_a_finding() -> None:
    def raises(input: Any) -> Any:
        raise ValueError("not today")

    faulty = checker("Torch.exp", torch.exp)
    faulty.registry.references["Torch.exp"] = raises
    findings = search(faulty, "Torch.exp", "float32", 20, seed=1)
    assert findings.failed is not None


def names() -> list[str]:
    """One name of each operator of the table, as a dump has it."""
    signatures, found = frameworks.signatures(), dict[str, str]()
    for name in frameworks.load().apis():
        api = signatures.canonical(name)
        if api in table() and name.rpartition(".")[2] == api and not name.startswith("Tensor."):
            found.setdefault(api, name)
    assert set(found) == set(table())
    return list(found.values())


@pytest.mark.evidence
@pytest.mark.parametrize("api", names())
def test_the_table_draws_calls_that_the_reference_takes(api: str) -> None:
    findings = search(checker(), api, "float32", 8, 1, ("forward",))
    assert sum(findings.rejected.values()) <= 0.5 * max(1, findings.examples), findings.rejected


def naive_reduction(input: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.fmod(input, 6.2831855))


def by_logarithm(input: torch.Tensor, exponent: float) -> torch.Tensor:
    return torch.where(input > 0, torch.exp(exponent * torch.log(input)), torch.pow(input, exponent))


def reason(api: str, kernel: Callable[..., torch.Tensor], numbers: list[float], *rest: int) -> str:
    """Why a kernel's call on these numbers fails; "" where it does not."""
    array = np.array(numbers, np.float32)
    call = Call((TensorSpec("float32", array.shape), *rest), {}, None, (), surroundings=Surroundings())
    judging = trials(checker(api, kernel), api, ("forward",))
    failing = judging.judged(call, Arguments((Leaf(array), *rest), {}, ())).failing
    return failing.verdict.reason if failing is not None else ""


@pytest.mark.parametrize(
    ("api", "kernel", "rest"), [("Torch.sin", naive_reduction, ()), ("Torch.pow", by_logarithm, (7,))]
)
def test_what_noise_cannot_see_is_seen_by_ulp(
    api: str, kernel: Callable[..., torch.Tensor], rest: tuple[int, ...]
) -> None:
    found = reason(api, kernel, [355.0, 710.0, 1000.0, 0.3], *rest)
    assert "on inputs that are exact" in found
    assert not reason(api, kernel, [355.1, 710.1, 1000.1, 0.3], *rest)


@pytest.mark.parametrize(("api", "kernel"), [("Torch.sin", naive_reduction), ("Torch.pow", by_logarithm)])
def test_a_search_finds_it(api: str, kernel: Callable[..., torch.Tensor]) -> None:
    assert search(checker(api, kernel), api, "float32", 200, 1, ("forward",)).failed is not None


def test_whole_numbers_and_halves_are_exact() -> None:
    numbers = np.array([[1.0, 3.0, -0.5], [0.25, np.nan, np.inf]], np.float32)
    leaves = {"input.0": Leaf(numbers), "input.1": Leaf(np.array([7])), "input.2": Leaf(np.array([2.0, 0.1, 0.0]))}
    assert exact_elements(leaves, (2, 3)).tolist() == [[True, False, True], [False, False, False]]
    # A tensor that does not broadcast counts as a whole: an `out` that is resized.
    for out, exact in ((np.zeros(0, np.float32), [True, False, True]), (np.full((2, 3), 0.1, np.float32), [False] * 3)):
        leaves = {"input.0": Leaf(np.array([[1.0, 0.1, -0.5]], np.float32)), "kwargs.out": Leaf(out)}
        assert exact_elements(leaves, (1, 3)).tolist() == [exact]


def test_a_function_of_16_bit_sees_every_number() -> None:
    def wrong_once(input: torch.Tensor) -> torch.Tensor:
        return torch.where(input == 1.8046875, input, torch.exp(input))

    found = search(checker("Torch.exp", wrong_once), "Torch.exp", "bfloat16", 5, 1, ("forward",))
    assert found.failed is not None
    assert found.found_after == 1
