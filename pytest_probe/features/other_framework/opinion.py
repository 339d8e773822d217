"""A second opinion on a call whose result is an error: how far another framework's kernel errs on the same inputs."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Checked, Checker
from pytest_probe.check.pair_metrics import noise_of
from pytest_probe.errors import ProbeError
from pytest_probe.frameworks.mapping.table import PAIRS


def asked_of(framework: str) -> str:
    """The module of the framework to which a map leads from the records of another one, where it is installed; else
    ""."""
    own = frameworks.MODULES.get(framework)
    others = (pair.split("_")[1] for pair in PAIRS if pair.split("_")[0] == own)
    return next((other for other in others if not frameworks.unavailable(frameworks.named(other))), "")


def opinion(checker: Checker, module: str, checked: Checked) -> str:
    """In words, what the other framework's kernel gives; "" where nothing corresponds to the call."""
    assert checked.worst is not None
    arguments = checked.worst.replay.reference.candidate.arguments
    try:
        verdict = checker.run(replace(checked.case, arguments=arguments)).verdict
    except ProbeError:
        return ""
    ratio = noise_of(verdict)
    if verdict.verdict == "skip" or ratio is None:
        return ""
    words = "which is an error as well" if verdict.verdict == "error" else "which is right"
    return f"on the CPU {module} errs by a noise ratio of {ratio:.3g}, {words}"
