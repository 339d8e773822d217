"""Known holes in what the project requires: in the oldest release that each requirement allows, and in CI's releases.

    .venv-audit/bin/python benchmarks/audit.py

`make audit` makes the environment, with pip-audit, which asks PyPI. Exit status: 1 where a hole is known, or where
pip-audit cannot reach its data. Needs Python 3.11.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import tomllib

ROOT = Path(__file__).parent.parent
# Environments of developers, and of one benchmark.
_OWN = ("dev", "models")
# Why a hole is none here.
IGNORED = {"CVE-2026-24747": "of torch.load, which reads no file of a dump"}
_FLOOR = re.compile(r"([\w.-]+)(?:\[.*?\])?[>=]=([\w.]+)")


def floors() -> dict[str, str]:
    """The oldest release of each requirement, of the build and of all extras that users install."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    extras = (needs for name, needs in project["optional-dependencies"].items() if name not in _OWN)
    lines = [*content["build-system"]["requires"], *project["dependencies"], *chain.from_iterable(extras)]
    return {found[1].lower(): found[2] for line in lines if (found := _FLOOR.match(line))}


def command(requirements: Path) -> Sequence[str]:
    """Strict: without it a release that pip-audit knows nothing of passes."""
    ignored = (part for name in IGNORED for part in ("--ignore-vuln", name))
    return [
        *(sys.executable, "-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "--progress-spinner=off"),
        *("-r", str(requirements), *ignored),
    ]


def _audited(title: str, lines: Iterator[str]) -> bool:
    print(f"{title}:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requirements.txt"
        path.write_text("\n".join(lines), encoding="utf-8")
        run = subprocess.run(command(path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(run.stdout, flush=True)
    if re.search("could not be audited|ConnectionError|ServiceError", run.stdout):
        print("pip-audit could not reach its data, or lacks a release: nothing is known of these requirements.")
    return run.returncode == 0


def main() -> int:
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    well = [
        _audited("the oldest releases", (f"{name}=={version}" for name, version in floors().items())),
        _audited("the releases of constraints.txt", (line for line in pinned if "==" in line)),
    ]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
