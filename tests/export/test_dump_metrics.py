"""What ptdbg_ascend 2.3 and 4.0 and msprobe 1.0.4 themselves print of two arrays, and what they make of it."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.export.dump_metrics import accuracy, msprobe, newer, older

NAN, INF = np.nan, np.inf
SCALAR = "This is type of scalar data, can not compare."
EMPTY = "This is empty data, can not compare."
PLACES = "The position of inf or nan in NPU and bench Tensor do not match."
ZERO_A = "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data."
ZERO_B = "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data."
COSINE_NAN = "Cannot compare by Cosine Similarity, the dump data has NaN."
QUOTIENT_NAN = "Cannot compare by MaxRelativeError, the data contains nan in dump data."
ARRAYS = {
    "near": ([1, 2, 4], [1.001, 2, 4.03]),
    "far": ([1, 2, 4], [-1, 2, 1]),
    "0 in B": ([1e-7, 2], [0, 2]),
    "A all 0": ([0, 0], [1, 2]),
    "B all 0": ([1, 2], [0, 0]),
    "both all 0": ([0, 0], [0, 0]),
    "inf at one place": ([1, INF, NAN, 2], [1, INF, NAN, 2.5]),
    "inf on one side": ([1, INF], [1, 2]),
    "one element": ([2], [2.5]),
    "no element": ([], []),
    "number": (1.5, 1.25),
    "NaN": (NAN, 0),
}
OTHER_ARRAYS = {
    "integer": (np.array(3), np.array(4)),
    "bool": (np.array(True), np.array(False)),
    "uint8": (np.array([1, 200], np.uint8), np.array([2, 100], np.uint8)),
    "float16": (np.array([1, 2], np.float16), np.array([1.001, 0], np.float16)),
}
CASES = {
    **{name: tuple(np.array(side, np.float32) for side in sides) for name, sides in ARRAYS.items()},
    **OTHER_ARRAYS,
}

# Cosine, MaxAbsErr, message; verdict.
OLDER = {
    "near": ("1.0", "0.030000", "", "Yes"),
    "far": ("0.623610", "3.000000", "", "No"),
    "0 in B": ("1.0", "0.000000", "", "Yes"),
    "A all 0": ("Nan", "2.000000", ZERO_A, "Nan"),
    "B all 0": ("Nan", "2.000000", ZERO_B, "Nan"),
    "both all 0": ("1.0", "0.000000", "", "Yes"),
    "inf at one place": ("Nan", "nan", COSINE_NAN, "Nan"),
    "inf on one side": ("Nan", "inf", COSINE_NAN, "Nan"),
    "one element": ("1.000000", "0.500000", "This tensor is scalar.", "Yes"),
    "no element": ("1", "0", EMPTY, "Yes"),
    "number": ("1", "0.250000", SCALAR, "Yes"),
    "NaN": ("1", "nan", SCALAR, "Yes"),
    "integer": ("1", "1.000000", SCALAR, "Yes"),
    "bool": ("0", "1.000000", SCALAR, "No"),
    "uint8": ("0.999888", "100.000000", "", "Yes"),
    "float16": ("0.447214", "2.000000", "", "No"),
}
# Cosine, MaxAbsErr, MaxRelativeErr, both shares, message; verdict.
NEWER = {
    "near": ("1.0", "0.030000209808", "0.007444220595", "0.666666666667", "0.666666666667", "", "Yes"),
    "far": ("0.623609564462", "3.000000000000", "3.000000000000", "0.333333333333", "0.333333333333", "", "No"),
    "0 in B": ("1.0", "0.000000100000", "0.838860750198", "0.500000000000", "0.500000000000", "", "Yes"),
    "A all 0": ("Nan", "2.000000000000", "1.000000000000", "0.000000000000", "0.000000000000", "", "Nan"),
    "B all 0": ("0.948683313129", "1.999999880791", "16777215.000000000000", *("0.000000000000",) * 2, "", "No"),
    "both all 0": ("1.0", "0.000000000000", "0.000000000000", "1.000000000000", "1.000000000000", "", "Yes"),
    "inf at one place": ("0.996545758245", "0.500000000000", "Nan", *("0.250000000000",) * 2, QUOTIENT_NAN, "Yes"),
    "inf on one side": (*("N/A",) * 5, PLACES, "No"),
    "one element": ("unsupported", "0.500000000000", "0.200000002980", *("0.000000000000",) * 2, "", "Nan"),
    "no element": ("unsupported", "0", "0", "0", "0", EMPTY, "Nan"),
    "number": ("unsupported", "0.250000000000", "0.200000002980", "Nan", "Nan", SCALAR, "Nan"),
    "NaN": ("unsupported", "nan", "Nan", "Nan", "Nan", SCALAR, "Nan"),
    "integer": ("unsupported", "1.000000000000", "0.250000000000", "Nan", "Nan", SCALAR, "Nan"),
    "bool": ("unsupported", "1.000000000000", "4503599627370496.000000000000", "Nan", "Nan", SCALAR, "Nan"),
    "uint8": ("0.999887541470", "100.000000000000", "1.000000000000", *("0.000000000000",) * 2, "", "No"),
    "float16": ("0.448085994146", "1.999023437500", "2047.000000000000", *("0.500000000000",) * 2, "", "No"),
}
MSPROBE = {
    "near": ("1.0", "0.030000209808", "0.007444220595", "0.666666666667", "0.666666666667", "", "Yes"),
    "far": ("0.623609564462", "3.0", "3.0", "0.333333333333", "0.333333333333", "", "No"),
    "0 in B": ("1.0", "1e-07", "0.838860750198", "0.5", "0.5", "", "Yes"),
    "A all 0": ("Nan", "2.0", "1.0", "0.0", "0.0", ZERO_A, "No"),
    "B all 0": ("0.948683313129", "1.999999880791", "16777215.0", "0.0", "0.0", "", "No"),
    "both all 0": ("1.0", "0.0", "0.0", "1.0", "1.0", "", "Yes"),
    "inf at one place": ("0.996545758245", "0.5", "0.20000000298", "0.75", "0.75", "", "Yes"),
    "inf on one side": (*("N/A",) * 5, PLACES, "No"),
    "one element": ("unsupported", "0.5", "0.20000000298", "0.0", "0.0", "This tensor is scalar.", "None"),
    "no element": ("unsupported", "0", "0", "0", "0", EMPTY, "None"),
    "number": ("unsupported", "0.25", "0.20000000298", "Nan", "Nan", SCALAR, "None"),
    "NaN": ("unsupported", "nan", "Nan", "Nan", "Nan", SCALAR + QUOTIENT_NAN, "None"),
    "integer": ("unsupported", "1.0", "0.25", "Nan", "Nan", SCALAR, "None"),
    "bool": ("unsupported", "1.0", "4503599627370496.0", "Nan", "Nan", SCALAR, "None"),
    "uint8": ("0.99988754147", "100.0", "1.0", "0.0", "0.0", "", "No"),
    "float16": ("0.448085994146", "1.9990234375", "2047.0", "0.5", "0.5", "", "No"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_tool_prints_what_it_prints(name: str) -> None:
    a, b = (side.copy() for side in CASES[name])
    for found, none, expected in (
        (older(a, b), "Nan", OLDER[name]),
        (newer(a, b), "Nan", NEWER[name]),
        (msprobe(a, b), "None", MSPROBE[name]),
    ):
        assert (*found, accuracy(found, is_older=len(found) == 3, none=none)) == expected
    assert all(np.array_equal(left, right, equal_nan=True) for left, right in zip((a, b), CASES[name], strict=True))


def test_other_shapes_are_not_compared() -> None:
    a, b = np.zeros((2, 3)), np.zeros((3, 2))
    for found in (older(a, b), newer(a, b), msprobe(a, b)):
        assert found[:2] == ("shape unmatched", "shape unmatched")
        assert accuracy(found) == "Unmatched"


def test_several_blocks_are_as_one() -> None:
    random = np.random.default_rng(0)
    b = random.standard_normal(200_000)
    a = b * 1.1 + 0.5
    b[::1000] = 0
    cosine = a.dot(b) / (np.linalg.norm(a) * np.linalg.norm(b))
    assert older(a, b) == (f"{cosine:.6f}", f"{np.max(np.abs(a - b)):.6f}", "")
    assert newer(a, b)[:2] == (f"{cosine:.12f}", f"{np.max(np.abs(a - b)):.12f}")


def test_another_name_is_told() -> None:
    a, b = np.ones(3), np.full(3, 2.0)
    fuzzy = " Fuzzy matching data, the comparison accuracy may be affected."
    assert newer(a, b, renamed=True)[-1] == msprobe(a, b, renamed=True)[-1] == fuzzy
