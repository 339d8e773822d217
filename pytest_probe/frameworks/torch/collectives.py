"""torch.distributed's functions as what a rank sent and received. Nothing of torch is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.collective import Collective, Kind, Piece, Reduction
from pytest_probe.model.dump import Call, Communication, GroupSpec, TensorSpec, named_tensors

# The kind of a skip.
UNREADABLE = "collective of another kind"


class _Function(Struct, frozen=True):
    """A function of torch.distributed: its parameters in their order, and which of them a rank sends, receives, and
    which names the root; a root of a group is another parameter, as "group_src"."""

    kind: Kind
    parameters: tuple[str, ...]
    sent: str
    received: str
    root: str = ""


def _function(kind: Kind, parameters: str, sent: str, received: str, root: str = "") -> _Function:
    return _Function(kind, tuple(parameters.split()), sent, received, root)


_FUNCTIONS: Mapping[str, _Function] = {
    "all_reduce": _function("reduced to all", "tensor op group async_op", "tensor", "tensor"),
    "all_reduce_coalesced": _function("reduced to all", "tensors op group async_op", "tensors", "tensors"),
    "reduce": _function("reduced to one", "tensor dst op group async_op group_dst", "tensor", "tensor", "dst"),
    "reduce_scatter": _function("reduced in parts", "output input_list op group async_op", "input_list", "output"),
    "reduce_scatter_tensor": _function("reduced in parts", "output input op group async_op", "input", "output"),
    "reduce_scatter_tensor_coalesced": _function(
        "reduced in parts", "outputs inputs op group async_op", "inputs", "outputs"
    ),
    "broadcast": _function("one to all", "tensor src group async_op group_src", "tensor", "tensor", "src"),
    "all_gather": _function("all to all in order", "tensor_list tensor group async_op", "tensor", "tensor_list"),
    "all_gather_into_tensor": _function(
        "all to all in order", "output_tensor input_tensor group async_op", "input_tensor", "output_tensor"
    ),
    "all_gather_into_tensor_coalesced": _function(
        "all to all in order", "outputs inputs group async_op", "inputs", "outputs"
    ),
    "gather": _function(
        "all to one", "tensor gather_list dst group async_op group_dst", "tensor", "gather_list", "dst"
    ),
    "scatter": _function(
        "parts of one", "tensor scatter_list src group async_op group_src", "scatter_list", "tensor", "src"
    ),
    "all_to_all": _function(
        "parts of all", "output_tensor_list input_tensor_list group async_op", "input_tensor_list", "output_tensor_list"
    ),
    "all_to_all_single": _function(
        "parts of all", "output input output_split_sizes input_split_sizes group async_op", "input", "output"
    ),
    "send": _function("sent", "tensor dst group tag group_dst", "tensor", "", "dst"),
    "recv": _function("received", "tensor src group tag group_src", "", "tensor", "src"),
    "barrier": _function("nothing", "group async_op device_ids", "", ""),
}
# Other names of the same.
_ALIASES = {
    "isend": "send",
    "irecv": "recv",
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
}
_BATCH = "batch_isend_irecv"
# Where a root is not given.
_FIRST = 0
_REDUCTIONS: Mapping[str, Reduction] = {
    "SUM": "total",
    "AVG": "average",
    "PRODUCT": "product",
    "MAX": "largest",
    "MIN": "least",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "exclusive or",
}
# What a process of one rank runs.
PROGRAM = "pytest_probe.frameworks.torch.ranks"
# What `probe.check_collective` calls what a collective computes.
REFERENCES: Mapping[str, tuple[Kind, Reduction]] = {
    "sum": ("reduced to all", "total"),
    "mean": ("reduced to all", "average"),
    "product": ("reduced to all", "product"),
    "max": ("reduced to all", "largest"),
    "min": ("reduced to all", "least"),
    "reduce_scatter": ("reduced in parts", "total"),
    "all_gather": ("all to all in order", "total"),
    "all_to_all": ("parts of all", "total"),
    "broadcast": ("one to all", "total"),
}


def bind(name: str, api: str, call: Call, groups: Mapping[str, tuple[int, ...]]) -> tuple[Collective, ...]:
    """What a record of this name and API did; see `Collectives` in model/collective.py."""
    if api == _BATCH:
        return tuple(_messages(name, call, groups))
    function = _FUNCTIONS.get(_ALIASES.get(api, api))
    if function is None:
        raise Unsupported(f"{name}: {api} is a collective that is not known here", UNREADABLE)
    return _Bound(name, api, function, call).collectives()


class _Bound:
    """A call with its arguments by their names."""

    def __init__(self, name: str, api: str, function: _Function, call: Call) -> None:
        self._name, self._api, self._function, self._call = name, api, function, call
        self._known = call.communication or Communication()
        places = {key: f"input.{index}" for index, key in enumerate(function.parameters[: len(call.args)])}
        self._arguments = {**dict(zip(function.parameters, call.args, strict=False)), **call.kwargs}
        self._places = {**places, **{key: f"kwargs.{key}" for key in call.kwargs}}
        group = self._arguments.get("group")
        self._ranks = self._known.ranks or (group.ranks if isinstance(group, GroupSpec) else ())

    def collectives(self) -> tuple[Collective, ...]:
        function, known = self._function, self._known
        sent, received = self._pieces(function.sent), self._received()
        one = Collective(
            self._api,
            function.kind,
            self._ranks,
            known.rank,
            self._reduction(),
            self._root() if function.root else None,
            sent,
            received,
            self._sizes(sent),
            known.order,
            known.waited,
            known.backend,
        )
        if not self._api.endswith("_coalesced") or function.kind == "reduced to all":
            return (one,)
        return tuple(replace(one, sent=(give,), received=(take,)) for give, take in zip(sent, received, strict=False))

    def _pieces(self, parameter: str) -> tuple[Piece, ...]:
        if self._arguments.get(parameter) is None:
            return ()
        place, entry = self._places[parameter], f"{self._name}.forward"
        root, _, rest = place.partition(".")
        field = f"{'input_args' if root == 'input' else 'input_kwargs'}.{rest}"
        found = [(field, self._arguments[parameter])]
        if isinstance(found[0][1], (list, tuple)):
            found = [(f"{field}.{index}", each) for index, each in enumerate(found[0][1])]
        return tuple(Piece(entry, where, each) for where, each in found if isinstance(each, TensorSpec))

    def _received(self) -> tuple[Piece, ...]:
        """What was recorded of the tensors that the call writes to: those alone, or all arguments behind it."""
        outputs = self._call.outputs
        parameter = self._function.received
        if not parameter or outputs is None:
            return ()
        wanted = len(self._pieces(parameter))
        found = [Piece(f"{self._name}.forward", place, spec) for place, spec in named_tensors(outputs, "output")]
        if len(found) > wanted and parameter in self._function.parameters[: len(outputs)]:
            start = f"output.{self._function.parameters.index(parameter)}"
            found = [each for each in found if f"{each.field}.".startswith(f"{start}.")]
        return tuple(found) if len(found) == wanted else ()

    def _reduction(self) -> Reduction:
        if not self._function.kind.startswith("reduced"):
            return "total"
        given = self._arguments.get("op", "SUM")
        words = re.findall(r"[A-Z_]{2,}", given) if isinstance(given, str) else []
        return next((_REDUCTIONS[word] for word in reversed(words) if word in _REDUCTIONS), "unknown")

    def _root(self) -> int | None:
        root, inside = self._arguments.get(self._function.root), self._arguments.get(f"group_{self._function.root}")
        if isinstance(inside, int) and 0 <= inside < len(self._ranks):
            return self._ranks[inside]
        if root is None and self._function.kind in ("all to one", "parts of one", "reduced to one", "one to all"):
            return self._ranks[0] if self._ranks else _FIRST
        return root if isinstance(root, int) else None

    def _sizes(self, sent: Sequence[Piece]) -> tuple[int, ...] | None:
        """How many elements of what is sent are for each rank."""
        if self._function.kind not in ("parts of all", "parts of one", "reduced in parts") or not sent:
            return None
        if len(sent) > 1 or "list" in self._function.sent:
            return tuple(each.spec.size for each in sent)
        rows = self._arguments.get("input_split_sizes")
        shape = sent[0].spec.shape
        if isinstance(rows, (list, tuple)) and rows and shape and all(isinstance(each, int) for each in rows):
            return tuple(each * (sent[0].spec.size // max(1, shape[0])) for each in rows)
        return None


def _messages(name: str, call: Call, groups: Mapping[str, tuple[int, ...]]) -> Iterator[Collective]:
    """The messages of a batch."""
    known = call.communication or Communication()
    trees = (call.args[0] if call.args else (), call.outputs)
    given, written = ([each for each in tree or () if isinstance(each, dict) and "peer" in each] for tree in trees)
    entry = f"{name}.forward"
    for index, message in enumerate(given):
        sends, peer = message["op"] == "isend", message["peer"]
        behind = written[index]["tensor"] if index < len(written) else None
        got = () if sends or behind is None else (Piece(entry, f"output.{index}.tensor", behind),)
        sent = (Piece(entry, f"input_args.0.{index}.tensor", message["tensor"]),) if sends else ()
        yield Collective(
            message["op"],
            "sent" if sends else "received",
            groups.get(message["group"], ()),
            known.rank,
            "total",
            peer,
            sent,
            got,
            None,
            known.order,
            known.waited,
        )
