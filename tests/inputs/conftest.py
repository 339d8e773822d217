from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.frameworks.torch.signatures import bind
from pytest_probe.inputs import StoredTensors, build
from pytest_probe.model.dump import Call
from pytest_probe.model.run import Arguments

Build = Callable[..., Arguments]


@pytest.fixture
def arguments(tmp_path: Path) -> Build:
    """build() with defaults: a call of Torch.exp, its dump in an empty folder, generated inputs, seed 0."""

    def make(
        *args: Any,
        api: str = "Torch.exp",
        kwargs: Any = None,
        outputs: Any = None,
        gradients: Any = None,
        **options: Any,
    ) -> Arguments:
        files = StoredTensors(tmp_path / "dump.json", (tmp_path / "data",))
        defaults = {"record": "Torch.exp.0", "dtype": None, "seed": 0, "kind": "generated", "files": files}
        call = Call(args, kwargs or {}, outputs, gradients)
        return build(call, bound=bind(api, call.args, call.kwargs), **{**defaults, **options})

    return make
