"""What is known of an API by its name: its class, and whether it works element by element."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import yaml

# APIs by another name, and operators by the name of the API that they are.
ALIASES = {"grid_sampler_2d": "grid_sample", "grid_sampler_3d": "grid_sample"}
OPERATORS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or"}


@dataclass(frozen=True, slots=True)
class Facts:
    """classes are the lists of classes.yaml that name the API; in_place tells that a trailing underscore does."""

    name: str
    classes: frozenset[str]
    in_place: bool = False

    @property
    def elementwise(self) -> bool:
        return "elementwise" in self.classes


@functools.cache
def facts(api: str) -> Facts:
    """Facts of "Functional.dropout", "Tensor.__iadd__", "Torch.linalg.svd", "Torch._foreach_add_"."""
    name = canonical(api)
    return Facts(name, frozenset(_listed(name)), api.endswith("_") and not api.endswith("__"))


def _listed(name: str) -> Iterator[str]:
    """The lists that name the API; for an entry of one dtype, "conv2d@float16", "narrow_backward@float16"."""
    for kind, names in _classes().items():
        for entry in names:
            listed, _, dtype = entry.partition("@")
            if listed == name:
                yield f"{kind}@{dtype}" if dtype else kind


def canonical(api: str) -> str:
    """The API's name without namespace, dunders, in-place mark and foreach prefix."""
    name = api.rsplit(".", 1)[-1]
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        for prefix in ("i", "r"):
            if name[1:] in _OPERATOR_NAMES and name.startswith(prefix):
                name = name[1:]
                break
        return OPERATORS.get(name, name)
    bare = name.removeprefix("_foreach_").rstrip("_")
    return ALIASES.get(bare, bare)


_OPERATOR_NAMES = frozenset("add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift".split())


@functools.cache
def _classes() -> dict[str, frozenset[str]]:
    text = resources.files("pytest_probe.standards").joinpath("tables/classes.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table = yaml.load(text, Loader=loader)
    return {kind: frozenset(" ".join(lines).split()) for kind, lines in table.items()}
