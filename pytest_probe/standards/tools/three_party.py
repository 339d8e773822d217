"""What a three-party verdict is made of: a device's row and a benchmark's, both measured against the same reference."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from msgspec import Struct

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import ratios as ratio_rule
from pytest_probe.standards.tools.ratios import ComparedMetric, Ratios
from pytest_probe.standards.tools.rules import RuleVerdict, UlpLimits, ulp
from pytest_probe.standards.tools.table import BENCHMARK

THREE = ("float16", "bfloat16", "float32")
WIDE_NAMES = ("float64", "complex64", "complex128")
UNSUPPORTED = RuleVerdict("skip", "this data type does not support benchmark compare")
EMPTY_SKIPPED = RuleVerdict("skip", "the tool compares no empty tensors")


class Decision(Struct, frozen=True):
    """rule: which one judged, "" where none did; compared: the benchmark rule's ratios, or the
    balance of accumulative errors; over_ratio: the ULP rule's, of
    both shares of elements beyond the threshold."""

    rule: str
    ruling: RuleVerdict
    compared: tuple[ComparedMetric, ...] = ()
    over_ratio: float | None = None


class Compare(Protocol):
    def __call__(self, api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision: ...


class ThreeParty:
    """A tool that judges a device beside a benchmark."""

    @staticmethod
    @abstractmethod
    def compare(api: str, dtype: str, device: Measures, benchmark: Measures) -> Decision:
        """The verdict on one output of an API ("Functional.linear"), and the rule that judged. dtype: the device's."""


def by_ulp(limits: UlpLimits, device: Measures, benchmark: Measures, ratios: Ratios) -> Decision:
    ratio = ratios.of(device.ulp_over_ratio, benchmark.ulp_over_ratio)
    return Decision("ulp", ulp(device, limits, benchmark, ratios.floor or 0.0), over_ratio=ratio)


def by_ratio(dtype: str, found: tuple[ComparedMetric, ...]) -> Decision:
    if dtype in WIDE_NAMES:
        return Decision("", UNSUPPORTED)
    return Decision(BENCHMARK, ratio_rule.benchmark(found), found)


def is_float_name(dtype: str) -> bool:
    return dtype in (*THREE, *WIDE_NAMES) or dtype.startswith("float8")
