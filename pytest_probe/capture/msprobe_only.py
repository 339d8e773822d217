"""What msprobe's configuration may hold and a capture of ours does not have: keys without effect, and features."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_probe.errors import SettingsError

log = logging.getLogger("pytest_probe")

# They choose how msprobe works, concern its other tasks, or ask for what is recorded anyway.
WITHOUT_EFFECT = frozenset(
    "acl_config async_dump backward_input bench_path check_mode custom_api custom_op_namespaces diff_check diff_nums "
    "dump_enable enable_dataloader error_data_path file_format free_benchmark grad_probe host is_benchmark_log "
    "is_online load nan_check nfs_path online_run_ut port precision rank_list request_id risk_level slice tensor_list "
    "tls_path".split()
)
_RECORD = "record with task statistics, then check with pytest --probe-dump=DUMP"
_LISTS = "check a dump with pytest --probe-dump=DUMP --probe-standards-file=FILE, this file for its lists"
_ONLINE = "msprobe's online check, which sends calls to another machine while the program runs"
# By key and value: what the feature is, and what does most of it here.
_FEATURES: Mapping[tuple[str, str | bool], tuple[str, str]] = {
    ("task", "free_benchmark"): ("msprobe's free benchmarking, which perturbs the calls of a running program", _RECORD),
    ("task", "grad_probe"): (
        "msprobe's gradient monitor",
        "level L0 or mix with a model records the gradients of its parameters",
    ),
    ("task", "run_ut"): ("msprobe's accuracy checker", _LISTS),
    ("task", "acc_check"): ("msprobe's accuracy checker", _LISTS),
    ("task", "nan_check"): ("msprobe's search for the first NaN", "task overflow_check records calls with NaN or inf"),
    ("task", "diff_check"): ("msprobe's comparison of a running program with a dump", _RECORD),
    ("task", "exception_dump"): ("msprobe's dump of AI Core exceptions", _RECORD),
    ("level", "L2"): ("msprobe's dump of Ascend kernels", "level L1 records the API calls that start them"),
    ("level", "debug"): ("msprobe's debugger.save", "levels L0, L1 and mix record calls"),
    ("summary_mode", "xor"): ("msprobe's XOR checksum", "summary_mode md5 records a checksum as well"),
    ("online_run_ut", True): (_ONLINE, _RECORD),
}


def effective(content: Mapping[str, Any], sections: tuple[str, ...], where: str) -> dict[str, Any]:
    """The content without the keys that have no effect, in its sections too; they are said once in a process.

    Raises SettingsError for a feature that a capture does not have, which it names.
    """
    parts = {name: part for name, part in content.items() if name in sections and isinstance(part, dict)}
    unused: list[str] = []
    kept = dict(_kept(content, where, "", unused))
    for name, part in parts.items():
        kept[name] = dict(_kept(part, where, f"{name}.", unused))
    if unused:
        _say(f"pytest-probe: {where}: these keys have no effect here: {', '.join(unused)}")
    return kept


def _kept(content: Mapping[str, Any], where: str, section: str, unused: list[str]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, str | bool) and (feature := _FEATURES.get((key, value))):
            what, instead = feature
            wanted = f"it is {what}, and pytest-probe does not have it; {instead}"
            raise SettingsError(f"{where}: {section.replace('.', ': ')}{key}", value, wanted)
        if key in WITHOUT_EFFECT:
            unused.append(f"{section}{key}")
        else:
            yield key, value


@functools.cache
def _say(message: str) -> None:
    log.warning(message)
