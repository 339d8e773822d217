"""MindSpore: which call of torch's corresponds to an API whose name or parameters are not torch's: the entries of
names.yaml. Neither MindSpore nor torch is imported before a call is made.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.python.binding import Signature

_CALL = re.compile(r"([\w.]+)\((.*)\)")
_NO_COUNTERPART = "no counterpart"


class Entry(Struct, frozen=True):
    """A call of torch's ("torch.nn.functional.gelu"), by which the API `api` is called with what `takes` says, by
    torch's names. only has the right values of parameters that torch has not, constant names those
    that MindSpore computes no gradient of."""

    api: str
    path: str
    takes: Signature
    only: Mapping[str, Any]
    constant: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """torch's result for MindSpore's arguments. Raises Unsupported for one that torch has not."""
        if len(args) > len(self.takes.parameters):
            raise Unsupported(f"{self.api}: torch has no argument {len(args) - 1}", _NO_COUNTERPART)
        named = {self._named(name): value for name, value in kwargs.items()}
        given = {**self.takes.defaults, **dict(zip(self.takes.parameters, args, strict=False)), **named}
        for name, right in self.only.items():
            if given.pop(name, right) != right:
                raise Unsupported(f"{self.api}: torch has no {name}", _NO_COUNTERPART)
        given |= {name: given[name].detach() for name in self.constant}
        # What is None takes torch's default, which means the same.
        return self.lookup()(**{name: value for name, value in given.items() if value is not None})

    def _named(self, keyword: str) -> str:
        """What torch calls a parameter. By torch's names MindSpore's methods have other defaults: `var(dim=1)`."""
        name = self.takes.aliases.get(keyword, keyword)
        if name not in self.takes.parameters or (name == keyword and name in self.takes.aliases.values()):
            raise Unsupported(f"{self.api}: torch has no {keyword} that means the same", _NO_COUNTERPART)
        return name

    def lookup(self) -> Callable[..., Any]:
        """torch's function now."""
        module, _, name = self.path.rpartition(".")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found


class _Written(Struct, frozen=True):
    call: str
    only: dict[str, Any] = {}
    constant: tuple[str, ...] = ()


@functools.cache
def entries() -> Mapping[str, Entry]:
    """By MindSpore's name, "mindspore.ops.gelu"."""
    text = resources.files(__package__).joinpath("names.yaml").read_bytes()
    return {api: _entry(api, found) for api, found in msgspec.yaml.decode(text, type=dict[str, str | _Written]).items()}


def _entry(api: str, written: str | _Written) -> Entry:
    found = _Written(written) if isinstance(written, str) else written
    match = _CALL.fullmatch(found.call)
    assert match is not None, found.call
    return Entry(api, match[1], Signature.parsed(match[2]), found.only, found.constant)
