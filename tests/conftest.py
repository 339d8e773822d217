from __future__ import annotations

from importlib.util import find_spec

# They hold what works where there is no torch: `make test-without-torch`.
collect_ignore = ["without_torch"] if find_spec("torch") else []
