"""An API's rows by the dtypes and shapes of the tensors that it is called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_probe.capture.profiling.track import Api


class ShapeRows:
    """Finds the row of a call. tensor is the framework's class of tensors."""

    def __init__(self, api: Api, tensor: type) -> None:
        self._api = api
        self._tensor = tensor
        self._known: dict[str, Api] = {}

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Api:
        """shapes of the row: `float32[2, 3], int64[4]` in the order of the arguments; those by keyword come last."""
        named = (f"{key}={one}" for key, value in kwargs.items() for one in self._told((value,)))
        told = ", ".join([*self._told(args), *named]) or "no tensors"
        found = self._known.get(told)
        if found is None:
            api = self._api
            found = Api(api.framework, api.name, api.direction, told, api, api.clock)
            self._known[told] = found
        return found

    def _told(self, values: Sequence[Any]) -> Iterator[str]:
        for value in values:
            if isinstance(value, self._tensor):
                # Both classes have these by the same names.
                tensor: Any = value
                try:
                    yield f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)}"
                except Exception:  # nested tensors have no shape, and classes of a program's own raise what they like
                    yield "tensor[?]"
            elif isinstance(value, list | tuple):
                yield from self._told(value)
