"""The APIs that a release of msprobe knows, by prefix, as JSON; under a Python that has it.

PYTHON tests/conformance/peer_names.py FILE
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import yaml

PREFIXES = {"functional": "Functional", "tensor": "Tensor", "torch": "Torch", "_VF": "VF"}


def main() -> None:
    spec = importlib.util.find_spec("msprobe")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.joinpath("pytorch").rglob("support_wrap_ops.yaml")
    lists = yaml.safe_load(path.read_text())
    names = [f"{prefix}.{name}" for key, prefix in PREFIXES.items() for name in lists[key]]
    Path(sys.argv[1]).write_text(json.dumps(names))


if __name__ == "__main__":
    main()
