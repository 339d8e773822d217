"""How one device's output is judged beside another's, by name: PaddleAPEX's flow, msprobe's rules, torch.testing's
tolerances, and equal bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.features.benchmark.output_folders import Tensor
from pytest_probe.features.msprobe_csv.rows import COSINE, MEASURED, OF_RULE
from pytest_probe.model.result import number
from pytest_probe.numerics.arrays import equal_bits, not_close
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools import TOOLS, Tool
from pytest_probe.standards.tools.release import PASS, RuleVerdict, zeros
from pytest_probe.standards.tools.tool import status

_TOOL = "paddleapex"
# What the tool takes for one kind of numbers; of others it compares none.
_KINDS = ({"float16", "float32", "float64"}, {"bool", "uint8"}, {"int32", "int64"})
_RATIOS = frozenset(
    ("error_balance", "rmse", "small_value_error_ratio", "max_rel_error", "mean_rel_error"),
)
_ALWAYS = frozenset(("cosine_distance", "max_abs_error", "thousandth_ratio", "ten_thousandth_ratio"))
_INTEGERS = frozenset(("binary_mismatch_ratio",))
# The tool prints these as they are in the arithmetic's own dtype.
_IN_DTYPE = frozenset(("max_abs_error", "max_rel_error", "mean_rel_error"))
_WITH_RATIOS, _NARROW = ("float16", "bfloat16", "float32"), ("float16", "bfloat16")


class Found(Struct, frozen=True):
    """What a rule says of an output. filled: metrics that the file has; arithmetic: in which dtype the tool computes;
    lost: the tool ends here."""

    ruling: RuleVerdict
    measures: Measures = Measures(0)
    filled: frozenset[str] = frozenset()
    arithmetic: str = "float64"
    lost: bool = False

    def cells(self) -> Iterator[tuple[str, str]]:
        """By column."""
        for column, name in MEASURED.items():
            value = getattr(self.measures, name)
            if name in self.filled and value is not None:
                yield column, self._cell(column, name, number(value))

    def _cell(self, column: str, name: str, value: float) -> str:
        if name in _IN_DTYPE and self.arithmetic != "float64":
            with np.errstate(over="ignore"):
                return str(np.asarray(value, self.arithmetic))
        return f"{1 - value if column == COSINE else value:.14f}"


class DirectRule(Struct, frozen=True):
    """tool: whose metrics the file has, and whose verdict counts where there is no closeness, which gives the reason
    why outputs are not close. as_tool: statuses, and what is lost, are PaddleAPEX's own; of_zeros: dropouts are;
    same_dtype: two float dtypes cannot be compared."""

    tool: Tool
    closeness: Callable[[Tensor, Tensor], str] | None = None
    as_tool: bool = False
    of_zeros: bool = False
    same_dtype: bool = False

    def judge(self, api: str, device: Tensor, benchmark: Tensor) -> Found:
        """Of two tensors of one shape."""
        if self.of_zeros:
            device, benchmark = _as_kept(device), _as_kept(benchmark)
        unlike = self._unlike_kinds(device, benchmark)
        if unlike:
            return Found(RuleVerdict("error", unlike))
        floating = device.array.dtype.kind not in "biu"
        if self.of_zeros and floating and not device.array.size:
            return Found(RuleVerdict("skip", "empty: the tool ends here, and drops the call"), lost=True)
        actual, expected = (_numbers(side, own=not self.of_zeros) for side in (device, benchmark))
        ruling, measures = self.tool.beside(api, device.dtype if floating else actual.dtype.name, actual, expected)
        if self.closeness is not None:
            reason = self.closeness(device, benchmark)
            ruling = RuleVerdict("error", reason) if reason else PASS
        filled = self._filled(api, device.dtype, measures) if floating else _INTEGERS
        arithmetic = np.result_type(device.array, benchmark.array).name if floating else "float64"
        return Found(ruling, measures, filled, arithmetic)

    def zeros(self, device: Tensor, benchmark: Tensor) -> RuleVerdict:
        return zeros(device.array, benchmark.array)

    def _unlike_kinds(self, device: Tensor, benchmark: Tensor) -> str:
        names = [side.array.dtype.name for side in (device, benchmark)]
        if self.of_zeros:
            alike = any(kind.issuperset(names) for kind in _KINDS)
        elif self.same_dtype:
            names = [device.dtype, benchmark.dtype]
            alike = names[0] == names[1]
        else:
            kinds = [side.array.dtype.kind for side in (device, benchmark)]
            # NumPy's kind of bfloat16 is V.
            alike = len({"f" if kind == "V" else kind for kind in kinds}) == 1
        if not alike and names[0] == names[1]:
            return f"PaddleAPEX compares no {names[0]}"
        return "" if alike else f"{names[0]} and the benchmark's {names[1]} cannot be compared"

    def _filled(self, api: str, dtype: str, measures: Measures) -> frozenset[str]:
        how, more = self.tool.release.status, frozenset[str]()
        cosine, largest = how.checks[:2] if how.checks else (None, None)
        if cosine and largest and dtype in _NARROW:
            # The share within 1 % is asked for where neither the cosine nor the largest error decided.
            near = status(replace(how, checks=(cosine,)), dtype, measures).verdict == "pass"
            undecided = near and not largest.holds(number(measures.max_abs_error))
            more |= {"hundredth_ratio"} if undecided else set()
        if dtype not in _WITH_RATIOS:
            return _ALWAYS | more
        listed = OF_RULE.get(self.tool.lists.rule(api, dtype).name) if self.of_zeros and not self.as_tool else None
        columns = frozenset(MEASURED[column] for column in listed) if listed else _RATIOS
        return _ALWAYS | more | columns


def _as_kept(side: Tensor) -> Tensor:
    """bfloat16 as PaddleAPEX keeps it, in float32."""
    return Tensor(side.array.astype(np.float32), side.dtype) if side.array.dtype.name == "bfloat16" else side


def _numbers(side: Tensor, own: bool) -> AnyArray:
    """The array; in its numbers' own dtype where that is narrower."""
    if not own or side.array.dtype.kind in "biu" or side.dtype == side.array.dtype.name:
        return side.array
    return side.array.astype(numpy_dtype(side.dtype))


def _far(device: Tensor, benchmark: Tensor) -> str:
    return not_close(device.array, benchmark.array, (device.dtype, benchmark.dtype))


def _other_bits(device: Tensor, benchmark: Tensor) -> str:
    size = device.array.size
    other = round(size * (1 - equal_bits(device.array, benchmark.array)))
    return f"{other:,} of {size:,} elements have other bits" if other else ""


DIRECT_RULES: Mapping[str, DirectRule] = {
    "paddleapex": DirectRule(TOOLS["paddleapex"], as_tool=True, of_zeros=True),
    "paddleapex-documented": DirectRule(TOOLS["paddleapex-documented"], of_zeros=True),
    "msprobe": DirectRule(TOOLS["msprobe"]),
    "close": DirectRule(TOOLS[_TOOL], _far),
    "exact": DirectRule(TOOLS[_TOOL], _other_bits, same_dtype=True),
}
