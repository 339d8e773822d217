"""Records with one thing wrong each, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.acceptance.conftest import backward, forward, tensor

DTYPES = (
    "float16, bfloat16, float32, float64, complex64, complex128, bool, int8, int16, int32, int64, uint8, uint16, "
    "uint32, uint64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn_x2"
)
SIZE, NUMBER = "an integer from 0 on, below 2**63", "a number, true, false or null"
FLOAT = "a number that float64 holds"
HELD = "an integer of at most 64 bits"
BARE = "the bare name of a file, without a folder"

# What stands in place of a whole forward entry.
ENTRIES: tuple[tuple[Any, str], ...] = (
    (None, "null"),
    (7, "7"),
    (1.5, "1.5"),
    (True, "true"),
    ("x", '"x"'),
    ([], "an empty list"),
)

# What stands in a key of a forward entry: key, value, what is found, what is expected.
KEYS: tuple[tuple[str, Any, str, str], ...] = (
    ("input_args", None, "null", "a list of arguments"),
    ("input_args", 7, "7", "a list of arguments"),
    ("input_args", {"a": 1}, "an object with the keys a", "a list of arguments"),
    ("input_kwargs", None, "null", "an object of arguments"),
    ("input_kwargs", [1], "a list of 1", "an object of arguments"),
    ("output", "x", '"x"', "a list of outputs"),
    ("output", {}, "an empty object", "a list of outputs"),
)

# What stands in place of a tensor argument: value, field inside it, what is found, what is expected.
ARGUMENTS: tuple[tuple[Any, str, str, str], ...] = (
    (7, "", "7", "an object, a list or null"),
    ("x", "", '"x"', "an object, a list or null"),
    (True, "", "true", "an object, a list or null"),
    ({"type": 7}, ".type", "7", "the name of a type"),
    ({"type": "int"}, ".value", "nothing", "an integer"),
    ({"type": "int", "value": "3"}, ".value", '"3"', "an integer"),
    ({"type": "int", "value": True}, ".value", "true", "an integer"),
    ({"type": "int", "value": 2**64}, ".value", str(2**64), HELD),
    ({"type": "int64", "value": -(10**50)}, ".value", str(-(10**50)), HELD),
    ({"type": "slice", "value": [0, 2**70, 1]}, ".value.1", str(2**70), HELD),
    (
        {"type": "range", "value": [0, 10**15, 1]},
        ".value",
        '"range(0, 1000000000000000, 1)"',
        "at most 1,048,576 numbers",
    ),
    ({"type": "str", "value": "x" * 70_000}, ".value", "a text of 70,000 characters", "at most 65,536"),
    ({"type": "bool", "value": 1}, ".value", "1", "true or false"),
    ({"type": "float", "value": True}, ".value", "true", "a number"),
    ({"type": "str", "value": 2}, ".value", "2", "a string"),
    ({"type": "slice", "value": [1]}, ".value", "a list of 1", "three integers or nulls: start, stop and step"),
    ({"type": "torch.Size", "value": [-2]}, ".value.0", "-2", SIZE.replace("0", "-1", 1)),
    ({"type": "torch.dtype", "value": "torch.f12"}, ".value", 'the unknown dtype "torch.f12"', f"one of {DTYPES}"),
    ({"type": "torch.device", "value": 3}, ".value", "3", "the name of a device"),
)

# What stands in a key of a tensor argument: key, value, field behind the key, what is found, what is expected.
TENSORS: tuple[tuple[str, Any, str, str, str], ...] = (
    ("shape", None, "", "null", "a list of sizes"),
    ("shape", 7, "", "7", "a list of sizes"),
    ("shape", "x", "", '"x"', "a list of sizes"),
    ("shape", [2, -3], ".1", "-3", SIZE),
    ("shape", [2.5], ".0", "2.5", SIZE),
    ("shape", [True], ".0", "true", SIZE),
    ("shape", [[2]], ".0", "a list of 1", SIZE),
    ("shape", [2**63], ".0", "9223372036854775808", SIZE),
    ("shape", [1] * 65, "", "65 dimensions", "at most 64"),
    ("shape", [0, 2**62], "", f"the sizes 0, {2**62}", "sizes whose product, zeros left out, is below 2**59"),
    ("dtype", None, "", "null", "the name of a dtype"),
    ("dtype", [], "", "an empty list", "the name of a dtype"),
    ("dtype", "torch.flaot32", "", 'the unknown dtype "torch.flaot32"', f"one of {DTYPES}"),
    ("Max", "x", "", '"x"', NUMBER),
    ("Max", [], "", "an empty list", NUMBER),
    ("Min", {}, "", "an empty object", NUMBER),
    ("Max", 10**400, "", f"1{'0' * 56}...", FLOAT),
    ("Min", -(10**400), "", f"-1{'0' * 55}...", FLOAT),
    ("Mean", "1", "", '"1"', NUMBER),
    ("Norm", [1], "", "a list of 1", NUMBER),
    ("requires_grad", "yes", "", '"yes"', "true or false"),
    ("requires_grad", 1, "", "1", "true or false"),
    ("data_name", 7, "", "7", "the name of a file"),
    ("data_name", "", "", '""', BARE),
    ("data_name", "..", "", '".."', BARE),
    ("data_name", "../x.pt", "", '"../x.pt"', BARE),
    ("data_name", "a/x.pt", "", '"a/x.pt"', BARE),
    ("data_name", "..\\x.pt", "", '"..\\\\x.pt"', BARE),
    ("data_name", "/etc/passwd", "", '"/etc/passwd"', BARE),
)

# What stands in place of a backward entry: value, field, what is found, what is expected.
BACKWARDS: tuple[tuple[Any, str, str, str], ...] = (
    (7, "", "7", "an object"),
    ({"input": 7}, "input", "7", "a list of gradients"),
    ({"input": [7]}, "input.0", "7", "an object, a list or null"),
    ({"input": [{"type": "int", "value": 3}]}, "input.0", "an object with the keys type, value", "a tensor or null"),
)


def broken_records() -> tuple[dict[str, Any], dict[str, str]]:
    """The entries of a dump, and the message without the file for every item that is to be skipped."""
    data: dict[str, Any] = {}
    messages: dict[str, str] = {}
    for number, (entry, back, field, found, expected) in enumerate(_rows()):
        name = f"Functional.relu.{number}"
        data[f"{name}.forward"] = entry
        directions = ["forward"]
        if back is not None:
            data[f"{name}.backward"] = back
            directions.append("backward")
        where = f"{name}.{directions[-1]}: {field}" if field else f"{name}.{directions[-1]}"
        messages |= {f"{name}.{direction}": f"{where}: found {found}, expected {expected}" for direction in directions}
    return data, messages


def _rows() -> Iterator[tuple[Any, Any, str, str, str]]:
    """Forward entry, backward entry, field, what is found, what is expected."""
    x = tensor(2, 3)
    good = forward(x, output=x)
    yield from ((entry, None, "", found, "an object") for entry, found in ENTRIES)
    yield {}, None, "input_args", "nothing", "a list of arguments"
    yield from (({**good, key: value}, None, key, found, expected) for key, value, found, expected in KEYS)
    for value, field, found, expected in ARGUMENTS:
        yield forward(value, output=x), None, f"input_args.0{field}", found, expected
    for key in ("shape", "dtype"):
        less = {name: value for name, value in x.items() if name != key}
        expected = "a list of sizes" if key == "shape" else "the name of a dtype"
        yield forward(less, output=x), None, f"input_args.0.{key}", "nothing", expected
    for key, value, field, found, expected in TENSORS:
        yield forward({**x, key: value}, output=x), None, f"input_args.0.{key}{field}", found, expected
    for key, value, field, found, expected in TENSORS[3:5]:
        yield forward(x, output={**x, key: value}), None, f"output.0.{key}{field}", found, expected
        yield good, backward({**x, key: value}), f"input.0.{key}{field}", found, expected
        nested = {**good, "input_kwargs": {"other": [{**x, key: value}]}}
        yield nested, None, f"input_kwargs.other.0.{key}{field}", found, expected
    yield from ((good, back, field, found, expected) for back, field, found, expected in BACKWARDS)
