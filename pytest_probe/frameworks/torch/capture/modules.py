"""The calls of torch's modules, and their gradients.

torch.nn.Module.__call__ is wrapped, since it sees what the caller gives and gets, whatever hooks the modules have;
hooks of ours on them would turn off the faster paths of torch's own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frames import CallStacks
from pytest_probe.capture.modules import ModuleCalls, Watch
from pytest_probe.capture.recorder import Recorder
from pytest_probe.capture.snapshot import NamedEntry, backward_of
from pytest_probe.frameworks.torch.capture.gradients import Fire, Watched, wanting
from pytest_probe.frameworks.torch.capture.modes import Presence, patched, transforming, unseen
from pytest_probe.frameworks.torch.capture.values import Values

# A module's own nodes, its children's included; a call of an API has fewer.
_MOST_NODES = 1 << 18

# How the places of a module's own parameters begin.
_PARAMETERS = "parameters."


class Modules(ModuleCalls):
    """Follows the module calls of all threads."""

    kind = torch.nn.Module
    kind_name = "torch.nn.Module"
    atoms = (torch.Tensor, torch.Size)

    def __init__(
        self, config: CaptureConfig, presence: Presence, values: Values, stacks: CallStacks, fire: Fire
    ) -> None:
        super().__init__(config, values, stacks)
        self._presence = presence
        self._fire = fire
        self._patches = ExitStack()

    def begin(self, recorder: Recorder) -> None:
        super().begin(recorder)
        self._patches.enter_context(patched(torch.nn.Module, "__call__", self._call))

    def end(self) -> None:
        self._patches.close()
        super().end()

    # Positional only: the program's keywords may have any name.
    def _call(self, original: Callable[..., Any], module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._recorder is None:
            return original(module, *args, **kwargs)
        if self._presence.absent():
            with self._presence.present():
                return self._follow(original, module, args, kwargs)
        return self._follow(original, module, args, kwargs)

    def _follow(
        self,
        original: Callable[..., Any],
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if transforming():
            return original(module, *args, **kwargs)
        return self.made(original, module, args, kwargs)

    def named(self, model: Any) -> Iterable[tuple[str, Any]]:
        found: Iterator[tuple[str, Any]] = model.named_modules()
        return found

    def parameters(self, module: Any) -> Mapping[str, Any]:
        return {key: one for key, one in module._parameters.items() if one is not None and not is_lazy(one)}

    @contextmanager
    def aside(self) -> Iterator[None]:
        with unseen(), torch.no_grad():
            yield

    def wants_gradients(self) -> bool:
        return torch.is_grad_enabled()

    def watching(
        self, entry: NamedEntry, args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Watch:
        """Even where no argument wants a gradient: those of the outputs are recorded."""
        asking = [
            *wanting(args, "input"),
            *wanting(dict(kwargs), "kwargs"),
            *wanting(dict(parameters), _PARAMETERS.removesuffix(".")),
        ]
        start = torch._C._autograd._get_sequence_nr()

        def watch(outputs: Sequence[Any]) -> None:
            watched = _WatchedModule(entry.name, entry.parent)
            watched.watch(asking, list(wanting(outputs, "output")), start, self._fire, _MOST_NODES)

        return watch


class _WatchedModule(Watched):
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
