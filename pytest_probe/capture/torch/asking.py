"""torch's calls while a program runs, for who asks some of them further: a mode that copies the arguments of those."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map_only

from pytest_probe.capture.bindings import Function
from pytest_probe.capture.frames import Args, Kwargs
from pytest_probe.capture.hooks import Rule
from pytest_probe.capture.torch.modes import Watcher, transforming, unseen, without_modes
from pytest_probe.capture.torch.names import ALIASING, RecordedFunctions
from pytest_probe.frameworks.python.binding import works_in_place

_NARROW = (torch.float16, torch.bfloat16)
# By this a checkpoint ends its forward's second run, where that has saved what was wanted.
_RECOMPUTED = "_StopRecomputationError"
# Of a roundoff of the call's own dtype: so far may another order of the wider dtype's additions move what is rounded.
_TIE = 1 / 256


class ObservedCall(NamedTuple):
    """A call that the program made, by name ("Functional.linear.0"). result is None where the call may write to its
    arguments, and these are then copies from before it. gradients are the incoming ones of the tensors of its result,
    None for one that got none; they are empty before the backward."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    gradients: Sequence[torch.Tensor | None] = ()

    @property
    def api(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def whole(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All that it was given."""
        return tuple(self.args), dict(self.kwargs)

    @property
    def given(self) -> list[torch.Tensor]:
        return _tensors(self.whole)

    @property
    def place(self) -> str:
        """The device of the first tensor, "" without one."""
        return str(self.given[0].device) if self.given else ""


class CallObserver(Protocol):
    """Who asks. What asking raises does not reach the program. backward: calls are asked when the program's backward
    has given their gradients."""

    backward: bool

    def chosen(self, api: str) -> str:
        """The name of this call of an API; "" where it is not asked."""

    def ask(self, call: ObservedCall) -> bool:
        """Is the call suspicious?"""

    def failed(self, api: str, error: Exception) -> None:
        """A call could not be asked."""

    def keep(self, again: Callable[[], None]) -> None:
        """Record a suspicious call, which again makes."""

    def fixed(self, call: ObservedCall) -> Any:
        """What takes the place of the result of a call that writes to none of its arguments; None: nothing."""


class TorchAsking(Watcher):
    """Asks the program's calls between begin and end, on this thread and on threads that it starts."""

    def __init__(self, wants: Callable[[str], bool], asks: CallObserver) -> None:
        super().__init__(RecordedFunctions(wants))
        self._asks, self._asking = asks, False

    def begin(self) -> None:
        self._asking = True
        super().begin()

    def end(self) -> None:
        """Leave no hook; a thread that is still running keeps the mode, idle."""
        self._asking = False
        super().end()

    def call(
        self, rule: Rule | None, function: Function, args: Args, kwargs: Kwargs, *, overridden: bool = False
    ) -> Any:
        if rule is None or rule is ALIASING or not (rule.wanted and self._asking) or transforming():
            return function(*args, **kwargs)
        name = self._asks.chosen(rule.name)
        return self._made(rule, name, function, args, kwargs) if name else function(*args, **kwargs)

    def _made(self, rule: Rule, name: str, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        writes, backward = rule.writes or works_in_place(rule.name) or "out" in kwargs, self._asks.backward
        try:
            with _alike(), unseen():
                given = _each(_copied if writes or backward else _detached, (tuple(args), dict(kwargs)))
        except Exception as error:  # a tensor that cannot be copied, or no memory
            self._asks.failed(rule.name, error)
            return function(*args, **kwargs)
        known = {_place_in_graph(tensor) for tensor in _tensors((args, kwargs))} if backward else set()
        drawn = _Drawn() if rule.draws else None
        result = function(*args, **kwargs)
        if drawn is not None and drawn.moved():
            return result
        found = None
        with self._noting_failures(rule.name):
            found = None if writes else self._asks.fixed(ObservedCall(name, function, args, kwargs, result))
            own_args, own_kwargs = _as_an_autocast_casts(given, result)
            call = ObservedCall(name, function, own_args, own_kwargs, None if writes else result)
            if backward:
                self._ask_after_backward(call, known, result)
            else:
                self._ask(call)
        return result if found is None else found

    def _ask(self, call: ObservedCall) -> None:
        kind = call.given[0].device.type if call.given else "cpu"
        with _alike(), torch.autocast(kind, enabled=False):
            with without_modes():  # evidence is made by modes of ours
                wrong = self._asks.ask(call)
            if wrong:
                self._asks.keep(lambda: _make_again(call))

    def _ask_after_backward(self, call: ObservedCall, known: Collection[Any], result: Any) -> None:
        """known are the places of the arguments: what is handed through has the gradient of all its uses. Hooks of the
        graph's nodes, not of tensors: the program sees none on what it holds."""
        results = _tensors(result)
        found: list[torch.Tensor | None] = [None] * len(results)
        places: dict[Any, list[tuple[int, int]]] = {}
        for index, tensor in enumerate(results):
            if tensor.grad_fn is not None and _place_in_graph(tensor) not in known:
                places.setdefault(tensor.grad_fn, []).append((index, tensor.output_nr))

        def asked() -> None:
            for handle in handles:
                handle.remove()
            with self._noting_failures(call.api):
                self._ask(call._replace(result=None, gradients=found))

        def arrived(numbers: Sequence[tuple[int, int]], gradients: Sequence[torch.Tensor | None]) -> None:
            with self._noting_failures(call.api), torch.no_grad(), unseen():
                if all(each is None for each in found):
                    torch.autograd.Variable._execution_engine.queue_callback(asked)
                for index, number in numbers:
                    gradient = gradients[number]
                    found[index] = None if gradient is None else gradient.detach().clone()

        handles = [node.register_prehook(partial(arrived, numbers)) for node, numbers in places.items()]

    @contextmanager
    def _noting_failures(self, api: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error).__name__ == _RECOMPUTED:
                raise
            self._asks.failed(api, error)


@contextmanager
def _alike() -> Iterator[None]:
    """Nothing in here draws the program's numbers, enters its graph, or is saved as a checkpoint saves."""
    with _drawing_nothing(), torch.no_grad(), saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


class _Drawn:
    """Where the program's random numbers stand."""

    def __init__(self) -> None:
        kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device: Any = None if kind is None else torch.get_device_module(kind.type)
        self.places: list[Any] = [place for place in (torch, device) if hasattr(place, "get_rng_state")]
        self.states = self._now()

    def _now(self) -> list[torch.Tensor]:
        return [place.get_rng_state() for place in self.places]

    def moved(self) -> bool:
        return not all(map(torch.equal, self.states, self._now()))


@contextmanager
def _drawing_nothing() -> Iterator[None]:
    drawn = _Drawn()
    try:
        yield
    finally:
        for place, state in zip(drawn.places, drawn.states, strict=True):
            place.set_rng_state(state)


def _each(changed: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The tree with each of its tensors changed."""
    return tree_map_only(torch.Tensor, changed, tree)


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _place_in_graph(tensor: torch.Tensor) -> tuple[Any, int]:
    return tensor.grad_fn or id(tensor), tensor.output_nr


def _make_again(call: ObservedCall) -> None:
    """The call, and its backward for the incoming gradients that it had."""
    if not call.gradients:
        call.function(*call.args, **call.kwargs)
        return
    with torch.enable_grad():
        with unseen():  # a leaf cannot be written to
            args, kwargs = _each(lambda leaf: leaf.view_as(leaf), call.whole)
        results = _tensors(call.function(*args, **kwargs))
    pairs = zip(results, call.gradients, strict=True)
    asked = [(result, gradient) for result, gradient in pairs if gradient is not None]
    torch.autograd.backward([result for result, _ in asked], [gradient for _, gradient in asked])


def _as_an_autocast_casts(given: Any, result: Any) -> Any:
    """The arguments as an autocast hands them to the kernel."""
    tensors, results = _tensors(given), _tensors(result)
    kind = tensors[0].device.type if tensors else "cpu"
    if not results or not torch.is_autocast_enabled(kind):
        return given
    dtype = results[0].dtype
    casts = (torch.float32,) if dtype in _NARROW else _NARROW if dtype is torch.float32 else ()

    def cast(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad) if leaf.dtype in casts else leaf

    with torch.no_grad(), unseen():
        return _each(cast, given)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def otherwise(call: ObservedCall, *, on_cpu: bool) -> Any | None:
    """What takes the place of a call's result: what it gives in a wider dtype, or on the CPU, in the result's dtypes,
    with the gradients of that; None where it has no tensors, or the result would be the same."""
    own, dtype = _tensors(call.result), _wider(call)
    if not own or not call.given or (dtype is None and not (on_cpu and call.given[0].device.type != "cpu")):
        return None
    with _drawing_nothing(), torch.autocast(call.given[0].device.type, enabled=False):
        found = [leaf.to(of) for leaf, of in zip(_other_run(call, dtype, on_cpu=on_cpu), own, strict=True)]
    # A view stays one: the program may write to it.
    if all(
        bool(((one == other) | ((one != one) & (other != other))).all()) for one, other in zip(own, found, strict=True)
    ):
        return None
    leaves = iter(found)
    return _each(lambda leaf: next(leaves), call.result)


def agrees(call: ObservedCall, *, on_cpu: bool) -> bool:
    """Is the result what the call gives in a wider dtype, or in float64 on the CPU, rounded once? No kernel can be
    nearer to that. False as well where it cannot be known."""
    own, dtype = _tensors(call.result), _wider(call)
    if not own or dtype is None:
        return False
    try:
        wide = _other_run(call, torch.float64 if on_cpu else dtype, on_cpu=on_cpu)
        return len(own) == len(wide) and all(map(_rounded_once, own, wide))
    except Exception:  # no wider kernel, or no memory: who asks further says so
        return False


def repeats(call: ObservedCall, times: int) -> bool:
    """Does the call give the bits of its result so many times on the memory that other numbers were in, and as often on
    fresh memory? False as well where it cannot be known."""
    if call.result is None:
        return False
    try:
        own = _bits(_tensors(call.result))
        args, kwargs = _each(_copied, call.whole)
        held = [leaf for leaf in _tensors((args, kwargs)) if leaf.is_floating_point()]
        numbers = [leaf.clone() for leaf in held]
        for leaf in held:
            leaf.copy_(leaf.flatten().roll(1 + leaf.numel() // 2).view_as(leaf) / 2)
        call.function(*args, **kwargs)
        for leaf, right in zip(held, numbers, strict=True):
            leaf.copy_(right)
        same = (_tensors(call.function(*args, **kwargs)) for _ in range(times))
        fresh = (_other_run(call, None, on_cpu=False) for _ in range(times))
        found = (_bits(leaves) for leaves in chain(same, fresh))
        return all(len(own) == len(bits) and all(map(torch.equal, own, bits)) for bits in found)
    except Exception:  # the other numbers are refused, or there is no memory: who asks further says so
        return False


def moves_little(call: ObservedCall, steps: Sequence[int], ulps: float) -> bool:
    """Does no element of the result move by more than so many ulps where all floating arguments move by up to so many
    roundoffs? False as well where it cannot be known."""
    own = _tensors(call.result)
    if not own or not all(leaf.is_floating_point() and bool(leaf.isfinite().all()) for leaf in own):
        return False

    def moved(step: int, reverse: bool, leaf: torch.Tensor) -> torch.Tensor:
        if not leaf.is_floating_point():
            return leaf
        wide = torch.float64 if leaf.itemsize > 2 else torch.float32
        drawn = (torch.rand(leaf.shape, dtype=wide, device=leaf.device) - int(reverse)).abs()
        return (leaf * (1 + step * torch.finfo(leaf.dtype).eps / 2 * drawn)).to(leaf.dtype)

    try:
        for place, step in enumerate(steps):
            torch.manual_seed(0)
            args, kwargs = _each(partial(moved, step, place == 1), call.whole)
            for one, other in zip(own, _tensors(call.function(*args, **kwargs)), strict=True):
                # An ulp is half that at least.
                most = ulps * torch.finfo(one.dtype).eps / 2 * one.double().abs()
                if not ((one.double() - other.double()).abs() <= most).all():
                    return False
        return True
    except Exception:  # a moved number may be refused: who asks further says so
        return False


def _bits(leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [leaf.detach().contiguous().flatten().view(torch.uint8) for leaf in leaves]


def _rounded_once(own: torch.Tensor, wide: torch.Tensor) -> bool:
    wide = wide.to(own.device)
    if own.shape != wide.shape or not own.is_floating_point():
        return torch.equal(own, wide)
    near = _TIE * torch.finfo(own.dtype).eps / 2
    one, other = (wide * (1 - near)).to(own.dtype), (wide * (1 + near)).to(own.dtype)
    return bool(((own >= torch.minimum(one, other)) & (own <= torch.maximum(one, other))).all())


def _wider(call: ObservedCall) -> torch.dtype | None:
    """The dtype that is wider than the narrowest of a call's tensors; None without one, and for complex."""
    dtypes = {tensor.dtype for tensor in (*call.given, *_tensors(call.result))}
    if any(dtype.is_complex for dtype in dtypes):
        return None
    if not dtypes.isdisjoint(_NARROW):
        return torch.float32
    return torch.float64 if torch.float32 in dtypes else None


def _other_run(call: ObservedCall, dtype: torch.dtype | None, *, on_cpu: bool) -> list[torch.Tensor]:
    """The call on copies of its arguments, in their graph, the floating ones in this dtype where that is wider."""

    def copied(leaf: torch.Tensor) -> torch.Tensor:
        wide = leaf.is_floating_point() and dtype is not None and leaf.dtype.itemsize < dtype.itemsize
        return leaf.to("cpu" if on_cpu else leaf.device, dtype if wide else leaf.dtype, copy=True)

    args, kwargs = _each(copied, call.whole)
    return _tensors(call.function(*args, **kwargs))


made: Callable[[Callable[[str], bool], CallObserver], TorchAsking] = TorchAsking  # what sees the calls of the program
