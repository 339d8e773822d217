"""The folder of --probe-cache."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from pytest_probe.option_types import Given, Place


class WritableFolder(Place):
    """A folder that can be written, made where it is not there."""

    def read(self, given: Given) -> Path | None:
        path = given.path
        if path is None:
            return None
        try:
            path.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise given.wrong(f"give a folder that can be written: {error.strerror or error}", str(path)) from None
        return path
