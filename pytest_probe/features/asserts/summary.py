"""How far the tolerances of passing asserts are from what was needed: in the summary, and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pytest_probe.features.asserts.measured import FACTOR, one_ulp
from pytest_probe.reports.terminal import count

# Tests that the summary names; the file has all.
_TESTS = 20


class Tests:
    """The rows of all tests, those of one test with other parameters together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, float, float, str], list[float]] = {}

    def add(self, nodeid: str, rows: Iterable[Sequence[Any]]) -> None:
        for name, rtol, atol, dtype, number, used, zeros, factor in rows:
            row = self._rows.setdefault((nodeid.partition("[")[0], name, rtol, atol, dtype), [0, 0.0, 0, 0])
            row[:] = row[0] + number, max(row[1], used), row[2] + zeros, row[3] + factor

    @property
    def number(self) -> int:
        """Of asserts."""
        return sum(int(row[0]) for row in self._rows.values())

    def found(self) -> Iterator[dict[str, Any]]:
        """One object for each test, function, tolerance and dtype, those that use the least first."""
        for (test, name, rtol, atol, dtype), row in sorted(self._rows.items(), key=lambda each: (each[1][1], each[0])):
            number, used, zeros, factor = row
            found = {"id": test, "function": name, "dtype": dtype, "asserts": int(number), "rtol": rtol, "atol": atol}
            if rtol or atol:
                found |= {"used": used, "needed_rtol": rtol * used, "needed_atol": atol * used}
                found |= {"pass_zeros": int(zeros), "pass_factor": int(factor), "factor": FACTOR}
            yield found | ({"ulp": one_ulp(dtype)} if dtype else {})

    def json_lines(self) -> bytes:
        return "".join(f"{json.dumps(found)}\n" for found in self.found()).encode()

    def lines(self) -> Iterator[str]:
        """Of those with a tolerance."""
        found = [each for each in self.found() if "used" in each]
        tests = len({key[0] for key in self._rows})
        asserts = count(self.number, "passing assert")
        yield f"{asserts} in {count(tests, 'test function')}; what their tolerances need:"
        for each in found[:_TESTS]:
            names = [name for name in ("rtol", "atol") if each[name]]
            needed = (f"{name} {each[name]:.3g} given, {each[f'needed_{name}']:.2g} needed" for name in names)
            many = f"{'over' if each['asserts'] > 1 else 'in'} {count(each['asserts'], 'assert')}"
            ulp = f"; one {each['dtype']} ulp is {each['ulp']:.2g}" if each["dtype"] else ""
            yield f"{each['id']}: {' and '.join(needed)} {many}{ulp}"
            factor = f"a factor of {each['factor']:g}"
            for name, words in (("pass_zeros", "an output of zeros"), ("pass_factor", factor)):
                if each[name]:
                    some = "" if each[name] == each["asserts"] else f" in {each[name]:,} of them"
                    yield f"  would pass {words}{some}"
        if len(found) > _TESTS:
            yield f"and {len(found) - _TESTS:,} more; --probe-out=DIR writes all into asserts.jsonl"
