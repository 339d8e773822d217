"""Names of records and modules without what wrappers and other frameworks make of them."""

from __future__ import annotations

import re

from pytest_probe.model.dump import Dump, Record

# What wrappers put before the names of a module's parts: torch.compile, FSDP, DistributedDataParallel.
_WRAPPERS = re.compile(r"(?:(?<=\.)|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.")
# What compilers and FSDP make of a class's name.
_CLASSES = re.compile(r"(?<=\.)(?:FSDP|OptimizedModule|DistributedDataParallel|DDP)(?=[A-Z][a-z])")


def record_name(record: Record, dump: Dump) -> str:
    """A record's name; of a module's without wrappers."""
    return plain_module(record.name) if record.namespace in ("Module", "Cell") else record.name


def plain_module(name: str) -> str:
    """A module's name, as "Module.layers.0.fc.Linear.0", without what wrappers add to it."""
    start, dot, rest = name.partition(".")
    if not dot or start not in ("Module", "Cell"):
        return _CLASSES.sub("", _WRAPPERS.sub("", name))
    return f"{start}.{_CLASSES.sub('', _WRAPPERS.sub('', rest))}"
