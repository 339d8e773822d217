from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dumps import DUMPS, unpack


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The dump.json of every dump in tests/data, by its name."""
    folder = tmp_path_factory.mktemp("dumps")
    return {name: unpack(name, folder) for name in DUMPS}
