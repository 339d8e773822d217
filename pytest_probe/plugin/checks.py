"""What a project's own tests work with: checks of a function against a reference, and of a call of a dump."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome, Checker, PreparedCall
from pytest_probe.check.notebook import name_of, refuse_tolerances, same
from pytest_probe.check.quantizers import check_quantizer, quantizer
from pytest_probe.check.resolve import known_api
from pytest_probe.errors import NoKernel, ProbeError, UnsupportedDtype
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.model.case import Demands
from pytest_probe.model.dump import Record
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.run import Arguments, Way
from pytest_probe.model.verdict import Verdict
from pytest_probe.options import COLLECTIVES, RELATIONS, TWO_CALLS, imported
from pytest_probe.plugin import junit
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.marker import Marked
from pytest_probe.plugin.report_results import carry
from pytest_probe.plugin.reproduce import saved_file, test_command
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.tensors import Request

RESULTS: pytest.StashKey[list[Result]] = pytest.StashKey()
PACKAGE = Path(__file__).parent.parent
# Of a test run: what makes collectives of the user's own.
_COLLECTIVES: pytest.StashKey[Any] = pytest.StashKey()


class CheckFailed(AssertionError):
    """A check ended in a verdict that fails its test; its text is the whole report, its reason one line."""

    __module__ = "builtins"  # so that pytest prints the name alone

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class _Checks:
    """The checks of one test: each verdict becomes a result, and then passes, skips or fails the test."""

    def __init__(self, state: ProcessSession, item: pytest.Item) -> None:
        self._state = state
        self._item = item
        self._results: list[Result] = item.stash.setdefault(RESULTS, [])

    @property
    def _checker(self) -> Checker:
        return self._state.checker

    @property
    def device(self) -> str:
        """The device under test, by the name that the framework gives it."""
        return self._state.device_name

    def _judge(self, case: Case, judge: Callable[[], CaseOutcome], api: str) -> ItemVerdict:
        """A check with its final verdict, which becomes a result of the test."""
        started = time.perf_counter()
        identity = PortableId.parse(f"{self._item.nodeid}::{case.id}")
        with self._state.limited():
            checked = judge()
        file = partial(saved_file, self._state, self._item.nodeid.replace("/", "_"), case.id)
        verdict = checked.verdict
        # A skip stays one only where it is no fault of the test.
        verdict = replace(verdict, verdict="error") if self._is_fault(verdict) else verdict
        judged = ItemVerdict(checked, verdict, identity, api, file, self._command)
        judged.by_features(self._state)
        result = Result.of(
            judged.verdict,
            identity,
            api=api,
            direction=case.direction,
            dtype=case.dtype or "",
            device=self.device,
            duration=time.perf_counter() - started,
            gate=judged.compared,
            details=judged.details,
        )
        self._results.append(result)
        return judged

    def _is_fault(self, verdict: Verdict) -> bool:
        return False

    def _conclude(self, found: Sequence[ItemVerdict]) -> tuple[Verdict, ...]:
        """The verdicts, where the test passes. Raises CheckFailed, or skips the test."""
        failed = [judged for judged in found if judged.fails(strict=self._state.settings.strict)]
        first = failed[0] if failed else found[0]
        if failed and all(judged.known for judged in failed):
            pytest.xfail(f"known failure: {first.verdict.headline}")
        if failed:
            texts = (judged.text(self._state, name=judged.checked.case.id, device=self.device) for judged in failed)
            text = "\n\n".join([*texts, f"to reproduce: {self._command()}"])
            raise CheckFailed(text, first.reason(first.verdict.headline)) from _outside(found[-1].checked.cause)
        if all(judged.verdict.verdict == "skip" for judged in found):
            pytest.skip(first.verdict.reason)
        return tuple(judged.verdict for judged in found)

    def _command(self) -> str:
        return test_command(self._state, self._item.path, self._item.nodeid)


class ProbeFixture(_Checks):
    """The fixture `probe`."""

    def __init__(self, state: ProcessSession, item: pytest.Item) -> None:
        super().__init__(state, item)
        self._tensors = self._checks = 0

    def tensor(
        self,
        shape: Iterable[int] | int | None = None,
        dtype: object = None,
        *,
        low: float | None = None,
        high: float | None = None,
        like: object = None,
        fill: Literal["zeros", "ones", "ties", "ramp"] | None = None,
        layout: Literal["contiguous", "transposed", "channels_last", "sliced", "expanded"] = "contiguous",
        index_below: int | None = None,
    ) -> Any:
        """A tensor on the device under test, the same in every run of this test with this --probe-seed.

        Floats are drawn from [low, high], both among them, or from the normal distribution where neither is given;
        complex numbers by modulus; integers from [low, high] or 0 to 9; half of the booleans are True. dtype is the
        framework's, or its name; "float32" where nothing else is said.

        like, a tensor or what a dump says of one ({"dtype": "torch.float16", "shape": [8], "Max": 3.0, ...}), gives its
        statistics, and shape and dtype where those are left out. fill: "zeros", "ones", "ties" (four values that each
        stand many times) or "ramp" (from low to high in order). index_below: integers from 0 to below it. layout is
        how the tensor lies in memory: "transposed" (the last two dimensions), "channels_last", "sliced" (of a tensor
        with longer rows) or "expanded" (the first dimension, with stride 0).

        Raises SettingsError where an argument cannot be used, RecordError where an entry of a dump is wrong.
        """
        wanted = Request(shape, dtype, low, high, like, fill, layout, index_below)
        stream = RecordStreams(self._item.nodeid, self._state.settings.seed).at(f"args.{self._tensors}")
        self._tensors += 1
        engines = self._checker.engines
        with engines.settled():
            leaf = wanted.leaf(stream, lambda tensor: engines.framework.take(tensor, engines.device))
            return engines.framework.bind(Arguments((leaf,), {}, None), Way(engines.device), None).args[0]

    def check(
        self,
        function: Callable[..., Any],
        *,
        reference: Callable[..., Any],
        inputs: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        backward: bool = False,
        api: str | None = None,
        dtype: Literal["same", "any"] = "same",
        strides: bool = False,
        borders: Callable[..., Any] | None = None,
        against: Callable[..., Any] | None = None,
        relations: Sequence[str] = (),
        batch: Mapping[str, int | str] | None = None,
        rtol: None = None,
        atol: None = None,
    ) -> tuple[Verdict, ...]:
        """Judge function(*inputs, **kwargs), run on the device, against the reference in float64 on the CPU.

        Both are called on copies of the same values; what they write to is judged as well. With `backward` gradients of
        all floating tensors among the arguments are judged too, for incoming gradients drawn here. api
        ("Functional.softmax", whose arguments the function then takes in the same order) says whose judge decides;
        without it that of the reference, where it is a function of the framework's, else the noise standard. Returns
        the verdicts: forward, then backward.

        Outputs must have the structure, the shapes and the dtypes that the reference gives in the arguments' own
        dtypes, and lie on the device. dtype="any" lets floating outputs have any floating dtype; strides=True asks for
        the reference's strides, and for gradients laid out as the reference's or as their argument.

        borders is the reference with `probe.border` at each place where a kernel of the function ends and the next
        begins: a function that errs as rounding to the arguments' 16-bit dtype there does passes. In float64 it must
        give what the reference gives.

        against is a second function, called on the same inputs and judged alike: an error of either fails, and says
        whether it is A's (function) or B's (against). What both differ by is in the verdicts' metrics and notes.

        relations are asked of the function as --probe-relations asks them of recorded calls ("batch", "guard", ...).
        batch says which dimensions of its arguments are rows, where no API does: {"x": 0}, {"x": ":-1"} for all but the
        last.

        inputs: a list or tuple, or the only input. A Module, as function or as reference, is a function of its
        parameters and buffers, too, which both are given as the function has them: of two Modules the gradients of
        parameters and the changes of buffers are judged.

        Raises SettingsError where an argument cannot be used, as a tolerance (rtol, atol) or an unknown API;
        CheckFailed, an AssertionError, where a verdict is an error, or a warning under --probe-strict; skips the test
        where the device has no kernel. A test may check several times.
        """
        refuse_tolerances(rtol, atol)
        with self._checker.engines.settled():
            api = known_api(self._checker.engines, api or "")
        name = name_of(function)
        key = f"{name}.{self._checks}"
        self._checks += 1
        pairs = partial(
            self._checker.pairs,
            reference=reference,
            args=inputs if isinstance(inputs, (list, tuple)) else (inputs,),
            kwargs=kwargs,
            api=api,
            backward=backward,
            key=key,
            origin=self._item.nodeid,
            demands=Demands(same(dtype), strides),
            borders=borders,
        )
        check = self._state.check if against is None else self._beside(partial(pairs, against), name_of(against))
        if relations:
            further = imported(RELATIONS)(self._checker, self._state.at_risk, relations, batch)
            check = partial(_asked, check, further)
        try:
            cases = pairs(function)
        except UnsupportedDtype as error:
            pytest.skip(str(error))
        found: list[ItemVerdict] = []
        for case in cases:
            found.append(self._judge(case, partial(check, case), api or name))
            if found[-1].verdict.verdict == "error" and not found[-1].verdict.outputs:
                break  # it raised, and would again
        return self._conclude(found)

    def check_quantizer(
        self,
        function: Callable[..., Any],
        x: Any,
        *,
        recipe: object,
        rule: str | None = None,
        rounding: Literal["nearest", "stochastic"] = "nearest",
        saturate: bool = True,
        swizzle: object = None,
    ) -> Verdict:
        """Judge function(x), a quantiser, run on the device: its scales by their rules, its elements by x over the
        scale.

        x: a tensor, (..., columns), whose rows a product adds up. function returns values, scales and, for two levels,
        the scale of the whole tensor, as `pytest_probe.dequantize` takes them; bytes (uint8) count as float4 pairs, and
        as E8M0. recipe is a name ("mxfp8", "nvfp4", "BlockWise1x128", ...) or torch's ScalingType.

        rule: that scales must follow, "floor", "ceil", "even", "rceil" or "0.75", or "nearest", "up" or "down" where
        scales are no powers of two; None: any of them, one for all blocks. rounding: elements are rounded to nearest,
        ties to even, or by chance, which the function then does otherwise in each of 32 calls. saturate: what lies
        beyond the largest number becomes that, and else what the dtype has there. swizzle: "SWIZZLE_32_4_4".

        Raises CheckFailed where scales follow no rule, or elements are rounded otherwise; BrokenCall or SettingsError
        for arguments that cannot be used. Skips the test where the device has no kernel.
        """
        asked = quantizer(recipe, rule=rule, rounding=rounding, saturate=saturate, swizzle=swizzle)
        name = name_of(function)
        key = f"{name}.{self._checks}"
        self._checks += 1
        (case,) = self._checker.pairs(function, function, [x], key=key, origin=self._item.nodeid)
        judged = self._judge(case, partial(check_quantizer, self._checker, case, asked), name)
        (verdict,) = self._conclude([judged])
        return verdict

    def _beside(self, pairs: Callable[[], tuple[Case, ...]], name: str) -> Callable[[Case], CaseOutcome]:
        """Checks a case and that of a second function, of the same direction; name is that function's."""
        calls = imported(TWO_CALLS)(*(self._checker.changed(keeps_sides=True) for _ in range(2)), name)
        others = cache(lambda: {case.direction: case for case in pairs()})

        def check(case: Case) -> CaseOutcome:
            checked: CaseOutcome = calls.run(case, others()[case.direction])
            self._state.note_loss(checked)
            return checked

        return check

    def check_collective(
        self,
        function: Callable[..., Any],
        *,
        reference: str,
        inputs: Sequence[Any],
        ranks: int | None = None,
        backend: str = "gloo",
    ) -> tuple[Verdict, ...]:
        """Judge function(x), called by one process for each rank, as --probe-ranks judges recorded collectives. The
        verdicts, by rank.

        function stands in a module by itself. It gets its rank's input as a tensor of one row, with torch.distributed
        set up, and returns what the rank has received, a tensor or several; None: its input, which it wrote to.
        inputs: a tensor for each rank, all of one shape and dtype; ranks: how many there must be. reference: what it
        computes, "sum", "mean", "product", "max", "min", "reduce_scatter", "all_gather", "all_to_all" or "broadcast"
        (from rank 0).

        Raises SettingsError for what cannot be checked; CheckFailed where a rank's result is wrong, where a rank
        raises or dies, or where one has not ended after 0.8 times --probe-timeout; skips the test where the backend is
        not built in.
        """
        config, name = self._state.config, name_of(function)
        if _COLLECTIVES not in config.stash:
            config.stash[_COLLECTIVES] = imported(COLLECTIVES)(self._state.settings.timeout, {})
            config.add_cleanup(config.stash[_COLLECTIVES].close)
        with self._state.limited():
            found = config.stash[_COLLECTIVES].checked(function, reference, inputs, ranks, backend)

        def judged(checked: CaseOutcome) -> ItemVerdict:
            return self._judge(checked.case, lambda: checked, name)

        return self._conclude([*map(judged, found)])

    def border(self, x: Any) -> Any:
        """A tensor as it passes from one kernel to the next, in the function that `check` gets as `borders`. It is x
        itself, but in the runs that round there: those round its values, and the gradient that comes back to it."""
        return self._checker.border(x)

    def _is_fault(self, verdict: Verdict) -> bool:
        return verdict.verdict == "skip" and verdict.kind not in (NoKernel.kind, UnsupportedDtype.kind)


class ProbeCase(_Checks):
    """The fixture `probe_case`: one record's arguments, and the check of what a function makes of them."""

    def __init__(self, state: ProcessSession, item: pytest.Item, marked: Marked, prepared: PreparedCall) -> None:
        super().__init__(state, item)
        self._directions = marked.directions
        self._prepared = prepared

    @classmethod
    def prepared(cls, state: ProcessSession, item: pytest.Item, marked: Marked) -> ProbeCase:
        """With the record's arguments on the device. Skips the test where they cannot be had, as the item would be."""
        __tracebackhide__ = True
        with state.limited():
            prepared = state.checker.prepare(marked.case, gradient="backward" in marked.directions)
        if isinstance(prepared, CaseOutcome):
            skipped = prepared
            _Checks(state, item)._judge(marked.case, lambda: skipped, marked.case.api)
            pytest.skip(prepared.verdict.reason)
        return cls(state, item, marked, prepared)

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments: tensors on the device, which the test may write to."""
        return tuple(self._prepared.bound.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments, likewise."""
        return self._prepared.bound.kwargs

    @property
    def record(self) -> Record:
        """The record of the dump."""
        return self._prepared.case.record

    def check(
        self,
        output: Any,
        *,
        dtype: Literal["same", "any"] = "same",
        strides: bool = False,
        rtol: None = None,
        atol: None = None,
    ) -> tuple[Verdict, ...]:
        """Judge what a function returned for these arguments, and what it wrote to, by the recorded API in float64.

        output: a tensor, or a list, tuple, dict or dataclass of them. dtype and strides are as in `probe.check`.
        Where the mark asks for the backward, its gradients are taken from the output's graph. Returns the
        verdicts. Raises CheckFailed as `probe.check` does.
        """
        refuse_tolerances(rtol, atol)
        judge = partial(self._checker.judge, self._prepared, output, dtype=same(dtype), strides=strides)
        cases = (replace(self._prepared.case, direction=direction) for direction in self._directions)
        return self._conclude([self._judge(case, partial(judge, case.direction), case.api) for case in cases])


def _asked(
    check: Callable[[Case], CaseOutcome], further: Callable[[CaseOutcome], CaseOutcome], case: Case
) -> CaseOutcome:
    """A case that is checked, and judged further."""
    return further(check(case))


def complete(item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Give a test's report the results of its checks: junit shows the worst."""
    results = item.stash.get(RESULTS, [])
    if not results or (report.when != "call" and report.passed):
        return
    item.stash[RESULTS] = []
    worst = carry(report, results)
    item.user_properties[:] = [*junit.other_properties(item.user_properties), *junit.properties(worst)]
    report.user_properties = list(item.user_properties)
    failure = call.excinfo.value if call.excinfo is not None else None
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(failure, CheckFailed) and crash is not None:
        crash.message = failure.reason.splitlines()[0] if failure.reason else crash.message


def hide_own_frames(call: pytest.CallInfo[None]) -> None:
    """What is wrong with a test, or with what it checks, has no place in this package."""
    error = None if call.excinfo is None else call.excinfo.value
    if isinstance(error, (ProbeError, CheckFailed, pytest.skip.Exception, pytest.xfail.Exception)):
        _outside(error)


def _outside(error: BaseException | None) -> BaseException | None:
    """The error without the frames of this package, where there are others."""
    frame = None if error is None else error.__traceback__
    kept: list[TracebackType] = []
    while frame is not None:
        if PACKAGE not in Path(frame.tb_frame.f_code.co_filename).parents:
            kept.append(frame)
        frame = frame.tb_next
    for frame, behind in zip(kept, (*kept[1:], None), strict=False):
        frame.tb_next = behind
    return error.with_traceback(kept[0]) if error is not None and kept else error
