"""One thread for torch, in every process that tests start: tensors are small, and threads would only wait.

What hangs on the number of threads sets it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
