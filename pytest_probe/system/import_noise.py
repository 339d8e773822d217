"""What MindSpore writes to stderr while it is imported and makes its first tensor: it was built for NumPy 1."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def hidden_noise() -> Iterator[None]:
    """What Python and C++ write to stderr in here is shown only where it ends in an error."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        shown = True
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.redirect_stderr(os.fdopen(os.dup(2), "w", encoding="utf-8")) as text:
                yield
                text.close()
            shown = False
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if shown:
                file.seek(0)
                os.write(2, file.read())
