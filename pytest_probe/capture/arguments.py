"""The keyword arguments of PrecisionDebugger, for type checkers, and the words that they take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

# The words of msprobe's config.json, and `kinds`, which is ours.
Task: TypeAlias = Literal["statistics", "tensor", "structure", "overflow_check"]
Mode: TypeAlias = Literal["forward", "backward", "input", "output"]
Compiled: TypeAlias = Literal["as-is", "eager"]
Policy: TypeAlias = Literal["block", "sample", "drop"]
Kind: TypeAlias = Literal["float", "int", "bool", "scalar"]
Names: TypeAlias = Sequence[str] | None


class Options(TypedDict, total=False):
    """The keys of a configuration that have no parameter of their own; None: not said."""

    scope: Names
    list: Names
    data_mode: Sequence[Mode | Literal["all"]] | None
    summary_mode: Literal["statistics", "md5"] | None
    overflow_nums: int | None
    white_list: Names
    black_list: Names
    rank: Sequence[int | str] | None
    rank_folder: int | None
    extra_info: bool | None
    kinds: Sequence[Kind | Literal["all"]] | None
    overwrite: bool | None
    layout: Literal["msprobe", "paddleapex"] | None
    namespaces: Mapping[str, str] | None
    compiled: Compiled | None
    seed: int | None
    is_deterministic: bool | None
    # Where calls are sent, in our words and in msprobe's.
    online: str | None
    online_policy: Policy | None
    online_buffer: int | None
    tls_path: str | os.PathLike[str] | None
    online_run_ut: bool | None
    nfs_path: str | os.PathLike[str] | None
    host: str | None
    port: int | None
    # Of task free_benchmark.
    fuzz_stage: Literal["forward", "backward"]
    pert_mode: Literal["improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu"]
    fuzz_device: Literal["npu", "cpu"]
    fuzz_level: Literal["L1"]
    handler_type: Literal["check", "fix"]
    if_preheat: bool
    preheat_step: int
    max_sample: int
    sample: int


class AllOptions(Options, total=False):
    """Those of `capture`: these, and what PrecisionDebugger has as parameters besides the folder."""

    config_path: str | os.PathLike[str] | None
    task: str | None
    level: str | None
    model: Any
    step: Sequence[int | str] | None
    framework: str
