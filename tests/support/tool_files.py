"""What other tools wrote, under the names that docs/moving.md has for it."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from tests.support.dumps import DATA

ARCHIVES = (
    ("msprobe-8.3.3/overflow.tgz", ("step0", "overflow")),
    ("ptdbg/compare-4.0.tgz", ("dev", "ptdbg/npu"), ("ref", "ptdbg/bench")),
    ("ptdbg/checker-2023.tgz", ("random/step0", "checker2023")),
    ("paddleapex/gpt_outputs.txz", ("gpt/bench", "paddleapex/bench")),
    (
        "paddleapex/gpt_times.txz",
        ("gpt_times/float32", "paddleapex/float32"),
        ("gpt_times/bfloat16", "paddleapex/bfloat16"),
    ),
)


def add_files_of_tools(folder: Path) -> None:
    """What the tools wrote, for torch, Paddle and MindSpore, under the names that docs/moving.md has."""
    (folder / "msprobe").mkdir()
    for name in ("dump.json", "stack.json"):
        (folder / "msprobe" / name).write_bytes(gzip.decompress((DATA / f"msprobe-26.2.0/gpt/{name}.gz").read_bytes()))
    shutil.copy(DATA / "mindspore/mlp.zip", folder / "mindspore.zip")
    for archive, *places in ARCHIVES:
        shutil.unpack_archive(DATA / archive, folder / "unpacked", "xztar" if archive.endswith(".txz") else "gztar")
        for source, target in places:
            (folder / target).parent.mkdir(exist_ok=True)
            (folder / "unpacked" / source).rename(folder / target)
