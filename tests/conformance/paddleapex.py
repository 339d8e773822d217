"""PaddleAPEX's own replay beside ours: its run_paddle.py runs what our Tracer writes.

    python -m tests.conformance.paddleapex CHECKOUT

Small models are recorded with and without tensors, and run in FP32 on the CPU. Every record must have been run: one
that gave an output, or of which PaddleAPEX says that Paddle itself refused it. Exit status 1 where one was not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

# What PaddleAPEX says of a call that Paddle refused.
_REFUSED = re.compile(r"Run API (\S+) Forward Error")
# Its progress bar is not needed.
_TQDM = "def tqdm(items, **options):\n    return items\n"
_RECORDS = """
import sys
import paddle
from pytest_probe.paddle import Tracer
from tests.support import paddle_models

for model in paddle_models.ALL:
    paddle.seed(7)
    step, tracer = paddle_models.ALL[model](), Tracer(f"{sys.argv[1]}/{model}.json")
    for _ in range(2):
        tracer.start()
        step()
        tracer.stop()
"""


def recorded(folder: Path, mode: str) -> list[Path]:
    """The dumps of small models, made in a process of their own."""
    for model in ("gpt", "llama", "cnn", "lstm"):
        told = {"dump_root_path": str(folder / model), "dump_mode": mode, "target_step": [1], "dump_unique": False}
        (folder / f"{model}.json").write_text(json.dumps(told))
    subprocess.run([sys.executable, "-W", "ignore", "-c", _RECORDS, str(folder)], check=True)
    return sorted(folder.glob("*/rank0_step1/forward_rank0_all.json"))


def run(checkout: Path, dump: Path, folder: Path, real: bool) -> tuple[int, str]:
    """Let PaddleAPEX run a dump. Its exit status, and all that it says."""
    (folder / "tqdm.py").write_text(_TQDM)
    told = ["-json", dump.name, "-backend", "cpu", "-dtype", "FP32", "-mode", "acc", "-out", str(folder / "out")]
    told += ["-real", str(dump.parent)] if real else []
    script = checkout / "paddleapex/apex/run_paddle.py"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *told],
        cwd=dump.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stdout + ran.stderr


def judged(dump: Path, folder: Path, said: str) -> Counter[str]:
    """How many records were run, how many of those Paddle refused, and how many were not run."""
    outputs = {path.name for path in (folder / "out").glob("*/output/*")}
    refused = set(_REFUSED.findall(said))
    found: Counter[str] = Counter()
    for key in json.loads(dump.read_text()):
        kind = "refused by Paddle" if key in refused - outputs else "run" if key in outputs else "not run"
        found[kind] += 1
        if kind == "not run":
            print(f"    not run: {key}")
    return found


def main(arguments: Sequence[str]) -> int:
    checkout = Path(arguments[0]) if arguments else Path()
    if not (checkout / "paddleapex/apex/run_paddle.py").is_file():
        print("skipped: there is no checkout of PaddleAPEX; give one with PADDLEAPEX=DIR")
        return 0
    failed = False
    for mode in ("random", "real_data"):
        with tempfile.TemporaryDirectory() as name:
            for dump in recorded(Path(name), mode):
                with tempfile.TemporaryDirectory() as folder:
                    status, said = run(checkout.resolve(), dump, Path(folder), mode == "real_data")
                    found = judged(dump, Path(folder), said)
                print(f"{dump.parent.parent.name}, {mode}: exit status {status}, {dict(found)}")
                if status:
                    print(said[-1500:])
                failed |= bool(status or found["not run"])
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
