"""Strategies for tests of your own: `from pytest_probe.strategies import calls, tensors`, with hypothesis' `@given`.

They draw what `--probe-fuzz` draws: shapes on both sides of what kernels are tiled by, layouts, and contents by regime.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.errors import SettingsError
from pytest_probe.features.fuzz import strategy
from pytest_probe.features.fuzz.drawn import DrawnCall
from pytest_probe.features.fuzz.templates import Pattern, Template, TensorSlot, entry_of, table, template_from_table
from pytest_probe.model.run import Way

__all__ = ["DrawnArguments", "calls", "tensors"]


class DrawnArguments(Struct, frozen=True):
    """The arguments of a call, tensors of torch's on the device, and their description, which hypothesis shows."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    text: str

    def __repr__(self) -> str:
        return self.text


def calls(
    api: str, *, dtypes: tuple[str, ...] = ("float32",), device: str = "cpu"
) -> st.SearchStrategy[DrawnArguments]:
    """Arguments of calls of an API of the table ("torch.nn.functional.softmax"), floating ones in one of the dtypes.
    Raises SettingsError for an API that the table does not have."""
    signatures = frameworks.signatures()
    name = signatures.spelled(api)
    if entry_of(name, signatures) is None:
        raise SettingsError("pytest_probe.strategies.calls", api, f"the table has {', '.join(sorted(table()))}")
    return strategy.calls([template_from_table(name, signatures, dtypes)]).map(lambda drawn: _made(drawn, device))


def tensors(shape: str = "*s", *, dtype: str = "float32", device: str = "cpu") -> st.SearchStrategy[Any]:
    """Tensors of torch's. shape is a pattern: "*s" any shape, "n 3 h w" one of four dimensions, the second of size
    3."""
    slots = {"input": TensorSlot(Pattern.of(shape), dtype)}
    template = Template("Torch.clone", frameworks.signatures(), slots, dtypes=(dtype,))
    return strategy.calls([template]).map(lambda drawn: _made(drawn, device).args[0])


def _made(drawn: DrawnCall, device: str) -> DrawnArguments:
    framework = frameworks.load()
    arguments = drawn.arguments(drawn.call())
    bound = framework.bind(arguments, Way(framework.device(device)), None)
    return DrawnArguments(tuple(bound.args), dict(bound.kwargs), str(drawn))
