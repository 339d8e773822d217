from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.features.fuzz.trial import Target, Trials
from pytest_probe.frameworks.torch.kernels import FINDINGS, Finding
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf
from pytest_probe.numerics.dtypes import widen
from pytest_probe.registry import Registry

RELEASE = ".".join(torch.__version__.split(".")[:2])
# Numbers that show each finding, and numbers that do not.
SHOWING = {"gelu": (np.inf, -np.inf), "erf": (2.0**-20, -(2.0**-18)), "sinh": (89.0, -89.2), "cosh": (89.0, 88.8)}
PLAIN = np.linspace(-3.0, 3.0, 62)
APIS = {"gelu": "Functional.gelu", "erf": "Torch.erf", "sinh": "Torch.sinh", "cosh": "Torch.cosh"}
CASES = [pytest.param(each, dtype, id=f"{each.api}-{dtype}") for each in FINDINGS for dtype in each.dtypes]


def array(finding: Finding, dtype: str) -> np.ndarray:
    values = np.concatenate([PLAIN, SHOWING[finding.api]])
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def computed(finding: Finding, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    function = torch.nn.functional.gelu if finding.api == "gelu" else getattr(torch, finding.api)
    x = torch.from_numpy(widen(array(finding, dtype))).to(getattr(torch, dtype))
    return function(x).double().numpy(), function(x.double().where(x.double() > -np.inf, -40.0)).numpy()


def trial(finding: Finding, dtype: str, registry: Registry | None = None) -> str:
    api = APIS[finding.api]
    target = Target(api, "pytorch", f"{api}.fuzz", Path("table"), ("forward",))
    trials = Trials(Checker(RunRequest(device="cpu"), registry or Registry.default()), target)
    values = array(finding, dtype)
    call = Call((TensorSpec(dtype, values.shape),), {}, None, (), surroundings=Surroundings())
    [checked] = trials.judged(call, Arguments((Leaf(values),), {}, None)).checked
    return checked.verdict.verdict


def shown_here(finding: Finding, dtype: str) -> None:
    if RELEASE not in finding.releases:
        pytest.skip(f"proved for torch {', '.join(finding.releases)}")
    actual, expected = computed(finding, dtype)
    last = np.isclose(actual[-2:], expected[-2:], rtol=0.01, atol=0)
    if last.any():
        pytest.skip("this machine's kernels do not show it")


@pytest.mark.parametrize(("finding", "dtype"), CASES)
def test_the_elements_that_are_named_are_the_wrong_ones(finding: Finding, dtype: str) -> None:
    shown_here(finding, dtype)
    actual, _ = computed(finding, dtype)
    named = finding.elements(widen(array(finding, dtype)), actual)
    assert np.flatnonzero(named).tolist() == [len(PLAIN), len(PLAIN) + 1]


@pytest.mark.parametrize(("finding", "dtype"), CASES)
def test_a_search_warns_of_a_known_finding(finding: Finding, dtype: str) -> None:
    shown_here(finding, dtype)
    assert trial(finding, dtype) == "warning"


@pytest.mark.parametrize("element", [3, 62])
@pytest.mark.parametrize(("finding", "dtype"), CASES)
def test_another_wrong_element_stays_an_error(
    finding: Finding, dtype: str, element: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the plain numbers, or one of those that the finding concerns, that is wrong in another way."""
    owner = torch.nn.functional if finding.api == "gelu" else torch
    right = getattr(owner, finding.api)

    def faulty(x: torch.Tensor) -> torch.Tensor:
        out = right(x)
        if x.dtype is not torch.float64:
            out[element] = -7.0
        return out

    monkeypatch.setattr(owner, finding.api, faulty)
    assert trial(finding, dtype) == "error"


@pytest.mark.parametrize(("finding", "dtype"), CASES)
def test_a_kernel_of_the_users_is_not_excused(finding: Finding, dtype: str) -> None:
    shown_here(finding, dtype)
    registry = Registry.default()
    function = torch.nn.functional.gelu if finding.api == "gelu" else getattr(torch, finding.api)
    registry.calls[APIS[finding.api]] = lambda x: function(x)
    assert trial(finding, dtype, registry) == "error"
