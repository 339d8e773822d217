"""msprobe's own api_precision_compare on pairs of details files; under a Python that has it.

PYTHON tests/conformance/peer_compare.py DEVICE BENCHMARK FOLDER [DEVICE BENCHMARK FOLDER ...]
"""

from __future__ import annotations

import sys

from msprobe.pytorch.api_accuracy_checker.compare.api_precision_compare import _api_precision_compare


def main() -> None:
    given = sys.argv[1:]
    for at in range(0, len(given), 3):
        device, benchmark, folder = given[at : at + 3]
        sys.argv[1:] = ["-npu", device, "-gpu", benchmark, "-o", folder]
        _api_precision_compare()


if __name__ == "__main__":
    main()
