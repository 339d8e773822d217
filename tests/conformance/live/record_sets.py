"""The same training steps recorded by the tool and by ours: the same calls, the same values?

A row is an entry of a dump. Calls are matched in their order, since one that only one tool sees shifts all counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from tests.conformance.agreement import Agreement
from tests.conformance.live.captured import entries, names, recorded
from tests.conformance.live.tool import Tool
from tests.support.models import ALL

Bodies: TypeAlias = Mapping[str, Any]

# What the tool calls an API, and we; the first by its Python name, the second by the function that it is.
ALIASES = {
    "Tensor.__rmul__": "Tensor.__mul__",
    "Torch.vector_norm": "Torch.linalg.vector_norm",
    "Torch.slogdet": "Torch.linalg.slogdet",
}
# torch's own steps within `1 / tensor`, where `__mul__` follows, and within backward().
STEPS = ("Tensor.reciprocal", "Torch.ones_like")
# In its list, but torch's own code and operators do not come by its hooks.
UNHOOKED = ("Tensor.__rdiv__", "VF.lstm")
# Its mean and norm are summed and rounded in the tensor's own dtype; absolute values of complex numbers in theirs.
LOOSE = {"torch.bfloat16": 2.0**-4, "torch.float16": 2.0**-7}
COMPLEX = ("torch.complex64", "torch.complex128")
# Of several autograd nodes, and the gradient of the last looks as that of the API's input does.
SEVERAL_NODES = ("Functional.cross_entropy",)

UNKNOWN = "only ours: an API that is not in its list"
UNSEEN = "only ours: in its list, but its hook is not called"
PARTS = "only the tool's: a step within a call that we record as one"
OTHER_NAME = "alike under another name: it loses `linalg.`, a reflected operator keeps its own; counts shift by both"
KEYWORDS = "alike: ours has defaults too, and by keyword what was given by position, as torch's own hook hands them on"
LAST_NODE = "its gradients are those that the last autograd node gives, ours those of the API's inputs"
NO_COMPLEX = "it has no complex scalars"
NO_DEVICE = "it has no type for a device that is given by position"
SIGNED = "its norm of a number is the number itself, also below 0"

# A difference, and why it may be, "" where for no known reason.
Difference: TypeAlias = tuple[str, str]


def check(tool: Tool) -> Mapping[str, Agreement]:
    if tool.release.startswith("1.0."):
        return {}  # it records another program: without dropout, inputs as they are after the call
    mine = {model: dump for (model, task), dump in recorded(tool.folder / "record-sets-ours") if task == "statistics"}
    tool.run("peer_capture.py", tool.folder / "record-sets", *ALL)
    known = names(tool)
    forward, backward = Agreement(), Agreement()
    for model, dump in mine.items():
        (beside,) = (tool.folder / "record-sets" / model).glob("step0/*/dump.json")
        _Pair(model, entries(beside), entries(dump), known).add(forward, backward)
    return {"its capture and ours, forward entries": forward, "its capture and ours, backward entries": backward}


class _Pair:
    """The entries of one step: the tool's, and ours."""

    def __init__(self, model: str, theirs: Bodies, mine: Bodies, known: frozenset[str]) -> None:
        self.model = model
        self.theirs = theirs
        self.mine = mine
        self.known = known

    def add(self, forward: Agreement, backward: Agreement) -> None:
        for first, second in self._matched():
            for direction, found in (("forward", forward), ("backward", backward)):
                here, there = f"{first}.{direction}", f"{second}.{direction}"
                if here in self.theirs or there in self.mine:
                    differs = self._compared(here, there)
                    reasons = dict.fromkeys(reason for _, reason in differs)
                    slip = "" if "" in reasons else next(iter(reasons), "")
                    found.add(f"{self.model} {there if second else here}", "; ".join(text for text, _ in differs), slip)

    def _matched(self) -> Iterator[tuple[str, str]]:
        """Calls of the tool's and of ours, "" where the other has none."""
        theirs, mine = _calls(self.theirs), _calls(self.mine)
        first, second = ([ALIASES.get(_api(call), _api(call)) for call in calls] for calls in (theirs, mine))
        for kind, i, j, k, m in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
            if kind == "equal":
                yield from zip(theirs[i:j], mine[k:m], strict=True)
            else:
                yield from ((call, "") for call in theirs[i:j])
                yield from (("", call) for call in mine[k:m])

    def _compared(self, here: str, there: str) -> list[Difference]:
        """In what two entries differ."""
        theirs, mine = self.theirs.get(here), self.mine.get(there)
        if theirs is None:
            api = _api(there)
            return [("only ours has it", UNSEEN if api in UNHOOKED else UNKNOWN if api not in self.known else "")]
        if mine is None:
            return [("only the tool has it", PARTS if self._is_step(here) else "")]
        unlike = _unlike_forward if "input_args" in theirs else _unlike_backward
        found = [
            (text, reason or (LAST_NODE if _api(here) in SEVERAL_NODES and text.startswith("output") else ""))
            for text, reason in unlike(theirs, mine)
        ]
        return found if here == there else [*found, (f"the tool calls it {here}", OTHER_NAME)]

    def _is_step(self, here: str) -> bool:
        calls = _calls(self.theirs)
        before = _api(calls[calls.index(here.rpartition(".")[0]) - 1])
        return _api(here) in STEPS or (_api(here) == "Tensor.__mul__" and before == "Tensor.reciprocal")


def _calls(bodies: Bodies) -> list[str]:
    return [name.removesuffix(".forward") for name in bodies if name.endswith(".forward")]


def _api(name: str) -> str:
    return re.sub(r"\.\d+(\.\w+)?$", "", name)


def _unlike_forward(theirs: Bodies, mine: Bodies) -> Iterator[Difference]:
    named = theirs["input_kwargs"]
    given = [*mine["input_args"], *(value for key, value in mine["input_kwargs"].items() if key not in named)]
    if len(given) > len(theirs["input_args"]) or len(given) > len(mine["input_args"]):
        yield "arguments by keyword", KEYWORDS
    yield from _unlike(theirs["input_args"], given[: len(theirs["input_args"])], "input")
    for key, value in named.items():
        yield from _unlike(value, mine["input_kwargs"].get(key), f"input.{key}")
    yield from _unlike(theirs["output"], mine["output"], "output")


def _unlike_backward(theirs: Bodies, mine: Bodies) -> Iterator[Difference]:
    given = mine["input"]
    while given[-1] is None and len(given) > len(theirs["input"]):
        given = given[:-1]
    yield from _unlike(theirs["input"], given, "input")
    if _shapes(theirs["output"]) != _shapes(mine["output"]):
        yield f"output: {_shapes(mine['output'])}, the tool: {_shapes(theirs['output'])}", LAST_NODE
    else:
        yield from _unlike(theirs["output"], mine["output"], "output")


def _shapes(gradients: list[Any]) -> list[Any]:
    return [gradient and gradient["shape"] for gradient in gradients]


def _unlike(theirs: Any, mine: Any, field: str) -> Iterator[Difference]:
    if isinstance(theirs, Mapping) and isinstance(mine, Mapping) and "shape" in theirs:
        yield from ((f"{field}.{text}", reason) for text, reason in _unlike_tensors(theirs, mine))
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for index, (first, second) in enumerate(zip(theirs, mine, strict=True)):
            yield from _unlike(first, second, f"{field}.{index}")
    elif theirs != mine:
        kind = mine["type"] if isinstance(mine, Mapping) else ""
        reasons = {("None", "complex"): NO_COMPLEX, ("{}", "torch.device"): NO_DEVICE}
        yield f"{field}: {mine!r}, the tool: {theirs!r}", reasons.get((str(theirs), kind), "")


def _unlike_tensors(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> Iterator[Difference]:
    for key in ("type", "dtype", "shape", "requires_grad"):
        if theirs[key] != mine.get(key):
            yield f"{key}: {mine.get(key)!r}, the tool: {theirs[key]!r}", ""
    dtype, size = theirs["dtype"], max(abs(theirs["Max"] or 0), abs(theirs["Min"] or 0))
    loose = LOOSE.get(dtype, 2.0**-20)
    for key, tolerance in (("Max", 0.0), ("Min", 0.0), ("Mean", loose), ("Norm", loose)):
        first, second = theirs[key], mine.get(key)
        tolerance = tolerance or (loose if dtype in COMPLEX else 0.0)
        if first is not None and not _near(first, second, tolerance, tolerance * size):
            signed = key == "Norm" and not theirs["shape"] and _near(-first, second, tolerance, 0.0)
            yield f"{key}: {second!r}, the tool: {first!r}", SIGNED if signed else ""


def _near(first: float, second: Any, relative: float, absolute: float) -> bool:
    if not isinstance(second, (int, float)):
        return False
    return (first != first and second != second) or math.isclose(first, second, rel_tol=relative, abs_tol=absolute)
