"""Dumps: one reader for each format, and the way from a path to records.

In: a file or folder. Out: its dumps, as `Dump` with undecoded records. Raises DumpError, which names file and place.
"""

from pytest_probe.records.labels import (
    captured_path,
    labelled_path,
    labels,
    ranks_beside,
    run_of,
    stable_path,
    step_and_rank,
    step_number,
)
from pytest_probe.records.msprobe.call_sites import library_frame, module_path, user_frame
from pytest_probe.records.read import (
    NO_SUCH,
    READERS,
    dumps_of_option,
    expand_pattern,
    find_dumps,
    is_part,
    is_recognised,
    read_dump,
)

__all__ = [
    "NO_SUCH",
    "READERS",
    "captured_path",
    "dumps_of_option",
    "expand_pattern",
    "find_dumps",
    "is_part",
    "is_recognised",
    "labelled_path",
    "labels",
    "library_frame",
    "module_path",
    "ranks_beside",
    "read_dump",
    "run_of",
    "stable_path",
    "step_and_rank",
    "step_number",
    "user_frame",
]
