"""`python -m pytest_probe`: the command pytest-probe."""

from __future__ import annotations

import sys

from pytest_probe.cli import main

if __name__ == "__main__":
    sys.exit(main())
