"""One thread for torch, in every process that tests start: tensors are small, and threads would only wait.

What hangs on the number of threads sets it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ.setdefault("OMP_NUM_THREADS", "1")
# They hold what works where there is no torch: `make test-without-torch`.
collect_ignore = ["without_torch"] if find_spec("torch") else []
