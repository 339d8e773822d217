"""Hostile values by what they stand for, and how a tree with them becomes JSON that json.dumps would not write."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib import import_module
from typing import Any

import torch
from hypothesis import strategies as st

from pytest_probe.frameworks.torch.allowlist import is_api

# Stands for the folder beside the run's, in which nothing may be read or written.
OUTSIDE = "@OUTSIDE@"
# A key with it at its end is written without it: so keys occur twice.
AGAIN = "@AGAIN@"
_RAW = re.compile(r'"@RAW:([^"]*)@"')


def raw(token: str) -> str:
    """A value that is written as these characters."""
    return f"@RAW:{token}@"


DEEP = raw("[" * 3000 + "]" * 3000)
TEXTS = [
    "",
    " ",
    ".",
    "..",
    "\0",
    "\x1b[31m\x07",
    "\u202e\u2066",
    "\ud800",
    "\udfff\ud800",
    "x" * 70_000,
    "\n" * 300,
    "%s{0}$HOME`id`",
    "=cmd|1",
    "None",
    "NaN",
    "torch.Tensor",
    "../../x",
    f"{OUTSIDE}/canary.pt",
    "/dev/zero",
    "/proc/self/mem",
    "é" * 200,
    "٣",
]
INTEGERS = [
    0,
    1,
    -1,
    2,
    7,
    255,
    2**15,
    2**24,
    2**31 - 1,
    2**31,
    -(2**31),
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**400,
]
FLOATS = [
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-320,
    5e-324,
    1e38,
    -1e38,
    3.5e38,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
]
ODD: list[Any] = [
    None,
    True,
    False,
    {},
    [],
    [[]],
    [None] * 50,
    [0] * 100_000,
    DEEP,
    raw("1e999"),
    raw("-0"),
    raw("0." + "1" * 5000),
]
TYPED: list[dict[str, Any]] = [
    {"type": "slice", "value": [0, 2**62, 0]},
    {"type": "slice", "value": ["a", None, []]},
    {"type": "range", "value": [0, 10**12, 1]},
    {"type": "torch.dtype", "value": "torch.evil"},
    {"type": "torch.dtype", "value": "torch.float32"},
    {"type": "ellipsis", "value": "..."},
    {"type": "torch.device", "value": "cuda:99"},
    {"type": "torch.Size", "value": [2**62, 2**62]},
    {"type": "str", "value": "x" * 70_000},
    {"type": "int", "value": 2**62},
    {"type": "int", "value": "7"},
    {"type": "float", "value": float("nan")},
    {"type": "complex", "value": [1]},
    {"type": "builtin_function_or_method", "value": "eval"},
    {"type": "module", "value": "os"},
    {"type": "torch.Generator", "value": 0},
    {"type": "torch.Tensor"},
    {"type": "paddle.Tensor", "dtype": "FLOAT32", "shape": [2**31], "Max": 1, "Min": 0, "stop_gradient": False},
    {"type": "paddle.Tensor", "dtype": "INT64", "shape": [3], "Max": 2**40, "Min": -(2**40), "stop_gradient": True},
    {"type": "paddle.dtype", "value": "paddle.evil"},
    {"type": "torch.Tensor", "dtype": "torch.float32", "shape": []},
    {"type": []},
    {"type": None, "value": {}},
    {"type": "torch.Tensor", "dtype": "torch.float64", "shape": [2**31], "Max": 1, "Min": 0, "Mean": 0.5, "Norm": 1},
]
integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**66), 2**66), st.integers(-4, 64))
numbers = st.one_of(integers, st.sampled_from(FLOATS), st.floats())
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
anything: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from(TYPED),
    numbers,
    texts,
    st.recursive(
        numbers | texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
)
lengths = st.one_of(
    st.integers(0, 9),
    st.sampled_from([17, 64, 1000, 2**20, -1, -(2**62), 2**31, 2**40, 2**62, 2**63, None, 1.0, "2", True]),
)
shapes = st.one_of(
    st.lists(lengths, max_size=5), st.just([2] * 65), st.just([1] * 5000), st.just([2**32, 2**32]), st.just([0, 2**62])
)
dtypes = st.one_of(
    st.sampled_from(sorted(str(value) for value in vars(torch).values() if isinstance(value, torch.dtype))),
    st.sampled_from(
        [
            "float32",
            "torch.load",
            "torch",
            "torch.",
            "torch.float32\n",
            "bfloat16",
            "object",
            "<U9",
            "torch.Tensor.__class__",
            *["BFLOAT16", "FP16", "FLOAT32", "FLOAT64", "INT64", "BOOL", "UINT8", "COMPLEX64", "paddle.int8"],
        ]
    ),
)
file_names = st.one_of(
    st.sampled_from(
        [
            "../../outside/canary.pt",
            f"{OUTSIDE}/canary.pt",
            "../dump.json",
            "..",
            "x" * 5000,
            "a/b",
            "a\\b",
            "C:\\x.pt",
            "x.npy",
            "",
            "~",
            "\0",
            "a\0b.pt",
            "\ud800.pt",
            "/dev/zero",
            "/proc/self/environ",
            "file:///etc/passwd",
            "$HOME/x.pt",
        ]
    ),
    texts,
)
# What a field that readers know may hold; anything in the others.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "shape": shapes,
    "dtype": dtypes,
    **dict.fromkeys(("Max", "Min", "Mean", "Norm", "Max_origin", "Min_origin"), numbers),
    **dict.fromkeys(("data_name", "real_data_path"), file_names),
    "dump_data_dir": st.one_of(file_names, st.sampled_from([OUTSIDE, "/", "dump_tensor_data", "../../outside"])),
    "type": st.one_of(st.sampled_from([value["type"] for value in TYPED]), texts),
    "value": st.one_of(numbers, texts, st.lists(integers, max_size=4)),
    "requires_grad": anything,
    "stop_gradient": anything,
}
HOSTILE_APIS = [
    "Torch.load",
    "os.system",
    "Tensor.__class__",
    "../../x",
    "Torch._C._crash_if_csrc_asan",
    "Torch.hub.load",
    "Torch.ops.load_library",
    "Tensor.__reduce_ex__",
    "Functional.__builtins__.eval",
    "Functional.torch.load",
    "Torch.nn.functional.warnings.sys.exit",
    "Torch.save",
    "Tensor.share_memory_",
    "Tensor.data_ptr",
    "Tensor.set_",
    "Torch.from_file",
    "Torch.set_num_threads",
    "Torch.manual_seed",
    "builtins.exec",
    "subprocess.run",
    "Tensor.__setstate__",
    "Torch.compile",
    "Torch.jit.load",
    "Torch.set_default_dtype",
    "NPU.npu_fusion_attention",
    "Aten.add",
    "Distributed.all_reduce",
    "VF._fused_dropout",
    "Torch.use_deterministic_algorithms",
    "Tensor.register_hook",
    "Tensor.backward",
    "",
    ".",
    "Functional.",
    ".linear",
    "Functional",
    "Functional..linear",
    "Tensor." + "x" * 5000,
    "Functional.\x1b[2J",
    "Functional.li\ud800near",
    "paddle.load",
    "paddle.hub.load",
    "paddle.static.load_program_state",
    "paddle._C_ops.load_combine",
    "paddle._C_ops.py_func",
    "paddle._C_ops.run_program",
    "paddle.base.core.eager",
    "paddle.Tensor.__reduce_ex__",
    "paddle.Tensor.backward",
    "paddle.set_device",
    "paddle.utils.cpp_extension.load",
    "torch.load",
]
_TORCH_ENDINGS = [
    "0.forward",
    "0.backward",
    "1.forward",
    "-1.forward",
    "99999999999999999999999.forward",
    "٣.forward",
    "0.sideways",
    "forward",
    "0",
    "",
    "0.forward.0",
    "0x1.backward",
    "0.forward ",
    "0.forward::evil[bfloat16]",
    "0.forward/../../x",
    "0.parameters_grad",
    "1_0.forward",
]
_PADDLE_ENDINGS = [
    "*0",
    "*1",
    "*-1",
    "*99999999999999999999999",
    "*٣",
    "*",
    "",
    "*0*1",
    "*0x1",
    "*0/../../x",
    ".0.forward",
]
# What stands behind an API in an entry's name.
ENDINGS = {"torch": [f".{ending}" for ending in _TORCH_ENDINGS], "paddle": _PADDLE_ENDINGS}


@cache
def allowed_apis(framework: str) -> list[str]:
    """All that a dump may name."""
    if framework == "paddle":
        return sorted(import_module("pytest_probe.frameworks.paddle.allowlist").apis())
    places = {"Torch": torch, "Functional": torch.nn.functional, "Tensor": torch.Tensor}
    owners = {
        name: "torch.Tensor" if name == "Tensor" else getattr(place, "__name__", "") for name, place in places.items()
    }
    return [
        f"{name}.{api}" for name, place in places.items() for api in sorted(dir(place)) if is_api(owners[name], api)
    ]


def api_names(framework: str) -> st.SearchStrategy[str]:
    allowed = allowed_apis(framework)
    return st.one_of(st.sampled_from(allowed), st.sampled_from(allowed), st.sampled_from(HOSTILE_APIS), texts)


def as_json(tree: Any) -> bytes:
    """A tree as JSON, with its raw tokens and keys that occur twice."""
    previous = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else 0
    assert previous == 0 or previous > 400  # 10**400 is written
    text = json.dumps(tree, indent=1).replace(AGAIN, "")
    return _RAW.sub(lambda found: found[1], text).encode()
