"""The gradients of one call: read where its own autograd nodes meet those of its neighbours.

A hook on a tensor would see the sum over all its uses, and one on the last node that node's inputs, which are not the
API's. So the nodes between outputs and inputs are walked, once, right after the call, and those at the border get a
hook, which sees the gradients that come in and go out and gives nothing back. The graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.capture.hooks import Watched, placed
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.snapshot import NamedEntry, Parent, Tree, backward_of
from pytest_probe.capture.torch.modes import transforming

if TYPE_CHECKING:
    from pytest_probe.capture.torch.hooks import TorchHooks

Gradient: TypeAlias = torch.Tensor | None
# An index of what a hook sees has the gradient of a place.
Seats: TypeAlias = list[tuple[int, str]]
# By node, the seats of outputs' and of arguments' gradients.
Border: TypeAlias = Mapping[Any, tuple[Seats, Seats]]
# A tensor that wants a gradient: its place, itself, and the node and number that its gradient goes to.
Wanting: TypeAlias = tuple[str, torch.Tensor, Any, int]

# A call's own nodes are few; more can only be those of another thread, whose numbers cannot be compared.
MOST_NODES = 4096

# torch exports neither type: a node that keeps a leaf's gradient, and one that casts. This module is imported where a
# program begins a capture, which may be without grad.
with torch.inference_mode(False), torch.enable_grad():
    _leaf = torch.zeros(1, requires_grad=True, device="cpu")
    ACCUMULATE: Any = type(_leaf.view(1).grad_fn.next_functions[0][0])  # type: ignore[union-attr]
    _CAST: Any = type(_leaf.bfloat16().grad_fn)
    del _leaf

_autocasts = torch._C._is_any_autocast_enabled


def wanting(value: Any, place: str) -> list[Wanting]:
    """The tensors of an argument tree that want gradients, as they are before the call."""
    found = placed(value, place, torch.Tensor)
    return [(at, one, one.grad_fn, one.output_nr) for at, one in found if one.requires_grad]


class WatchedNodes(Watched):
    """The gradients of one call, read at the nodes of its border."""

    __slots__ = ("_casts", "_sums", "_task")

    def __init__(self, name: str, parent: Parent) -> None:
        super().__init__(name, parent)
        self._task: int | None = None
        self._sums: dict[str, Gradient] = {}
        self._casts: dict[str, torch.dtype] = {}

    def watch(
        self,
        arguments: Sequence[Wanting],
        outputs: Sequence[Wanting],
        start: int,
        fire: Fire,
        most_nodes: int = MOST_NODES,
        border: Border | None = None,
    ) -> None:
        """Put the hooks; start is autograd's number of nodes before the call, most_nodes how many it may have made.
        border is what the kernel has found, None where it leaves that to us."""
        if border is None:
            border = _border(arguments, outputs, start, most_nodes, self._casts)
        if not border:
            return
        self.incoming = {output[0]: None for output in outputs}
        self.outgoing = {argument[0]: None for argument in arguments}
        self.missing = len(border)
        for node, (outs, ins) in border.items():
            node.register_hook(partial(fire, self, outs, ins))
        # A gradient may leave by several nodes, and is their sum.
        if len(border) > 1:
            seats = [place for _, ins in border.values() for _, place in ins]
            self._sums = {place: None for place in seats if seats.count(place) > 1}

    def on_gradient(self, take: _Take, *gradients: Any) -> None:
        """A node was passed: of its gradients those of these seats came to the call, or left it. Another backward than
        the first may pass nodes that the first did not, as after one for the gradients of inputs alone."""
        if self._task is not None and self._task != torch._C._current_graph_task_id():
            self.missing = 0
            return
        outs, ins, in_grads, out_grads = gradients
        for index, place in outs:
            self.incoming[place] = take(out_grads[index])
        for index, place in ins:
            gradient = in_grads[index]
            if gradient is None:
                continue
            if place in self._sums:
                before = self._sums[place]
                gradient = self._sums[place] = gradient.clone() if before is None else before + gradient
            if place in self._casts:
                gradient = gradient.to(self._casts[place])
            self.outgoing[place] = take(gradient)
        self.missing -= 1
        if self.missing:
            self._task = torch._C._current_graph_task_id()


_Take: TypeAlias = Callable[[Gradient], Tree]
# With the seats of outputs' and of arguments' gradients, and what left and what came to a node.
Fire: TypeAlias = Callable[[Watched, Seats, Seats, tuple[Gradient, ...], tuple[Gradient, ...]], None]


def _border(
    arguments: Sequence[Wanting], outputs: Sequence[Wanting], start: int, most_nodes: int, casts: dict[str, torch.dtype]
) -> Border:
    """The nodes at the border of a call: for each the seats of outputs' and of arguments' gradients. casts
    gets the dtypes of the arguments whose gradients are cast to them only behind the border."""
    border: dict[Any, tuple[Seats, Seats]] = {}
    for place, _, node, number in outputs:
        if node is not None and node._sequence_nr() >= start:
            border.setdefault(node, ([], []))[0].append((number, place))
    if not border:
        return border
    targets: dict[Any, list[str]] = {}
    for place, tensor, node, number in arguments:
        targets.setdefault((node, number) if node is not None else id(tensor), []).append(place)
    found, known = list(border), set(border)
    while found and len(known) < most_nodes:
        node = found.pop()
        for index, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            leaf = type(following) is ACCUMULATE
            places = targets.get(id(following.variable) if leaf else (following, number))
            if places is None and type(following) is _CAST and _autocasts():
                # Autocast casts a parameter once, and the cast gets the gradients of all calls that use it.
                places = _cast(following, targets, casts)
            if places is not None:
                # A tensor at two places gets its gradients in their order.
                place = places.pop(0) if len(places) > 1 else places[0]
                border.setdefault(node, ([], []))[1].append((index, place))
            elif not leaf and following not in known and following._sequence_nr() >= start:
                known.add(following)
                found.append(following)
    return border


def _cast(node: Any, targets: Mapping[Any, list[str]], casts: dict[str, torch.dtype]) -> list[str] | None:
    """The places of the parameter whose cast this node is; casts gets the dtype of the first."""
    behind: Any = node.next_functions[0][0]
    places = targets.get(id(behind.variable)) if type(behind) is ACCUMULATE else None
    if places is not None:
        casts[places[0]] = behind.variable.dtype
    return places


# A module's own nodes, its children's included; a call of an API has fewer.
_MOST_NODES = 1 << 18

# How the places of a module's own parameters begin.
_PARAMETERS = "parameters."


class Modules(ModuleCalls):
    """Follows the module calls of all threads."""

    kind = torch.nn.Module
    kind_name = "torch.nn.Module"
    finds = True
    atoms = (torch.Tensor, torch.Size)

    _hooks: TorchHooks

    def called(self, original: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._recorder is None:
            return original(module, *args, **kwargs)
        if self._hooks.absent():
            with self._hooks.present():
                return self.called(original, module, *args, **kwargs)
        if transforming():
            return original(module, *args, **kwargs)
        return self.made(original, module, args, kwargs)

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        found: Iterator[tuple[str, Any]] = model.named_modules()
        return found

    def parameters(self, module: Any) -> Mapping[str, Any]:
        return {key: one for key, one in module._parameters.items() if one is not None and not is_lazy(one)}

    def watching(self, entry: NamedEntry, args: Args, kwargs: Kwargs, parameters: Mapping[str, Any]) -> Watch:
        """Even where no argument wants a gradient: those of the outputs are recorded."""
        asking = [
            *wanting(args, "input"),
            *wanting(dict(kwargs), "kwargs"),
            *wanting(dict(parameters), _PARAMETERS.removesuffix(".")),
        ]
        start = torch._C._autograd._get_sequence_nr()

        def watch(outputs: Sequence[Any]) -> None:
            watched = _WatchedModule(entry.name, entry.parent)
            watched.watch(asking, wanting(outputs, "output"), start, self._hooks._fire, _MOST_NODES)

        return watch


class _WatchedModule(WatchedNodes):
    """The gradients of one call of a module. Those of its parameters have an entry; they too are this call's alone."""

    __slots__ = ()

    def entries(self) -> Iterator[NamedEntry]:
        stem, _, number = self.name.rpartition(".forward.")
        parameters = [place for place in self.outgoing if place.startswith(_PARAMETERS)]
        gradients = {place.removeprefix(_PARAMETERS): [self.outgoing.pop(place)] for place in parameters}
        came = {name: trees for name, trees in gradients.items() if trees != [None]}
        if came:
            yield NamedEntry(f"{stem}.parameters_grad.{number}", came)
        yield NamedEntry(f"{stem}.backward.{number}", self.passed(), parent=backward_of(self.parent))
