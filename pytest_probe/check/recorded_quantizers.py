"""Recorded calls of functions that a project names as quantisers (`registry.quantizers`), judged as
`probe.check_quantizer` judges one: by what they were given, without a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_probe.check.outcome import Checked
from pytest_probe.check.quantised import concluded, quantised
from pytest_probe.check.stored_outputs import StoredOutputs
from pytest_probe.errors import BrokenCall, Unsupported
from pytest_probe.model.case import Case
from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import Arguments, Way
from pytest_probe.numerics.dtypes import AnyArray, is_floating
from pytest_probe.standards.quantisers.quantiser import DRAWS, Wanted

if TYPE_CHECKING:
    from pytest_probe.check.runner import CaseRunner
    from pytest_probe.check.sources import DeviceSource

# The kind of skips of what is not judged of such a record.
_KIND = "quantiser"


def of_record(case: Case, runner: CaseRunner) -> Checked | None:
    """The verdict on a record whose API the project named as a quantiser; None for any other case. Raises what
    `CaseRunner` does, and Unsupported for its backward."""
    wanted = runner.setup.registry.quantizers.get(case.api)
    if wanted is None or case.pair is not None:
        return None
    if case.direction == "backward":
        raise Unsupported(f"{case.api} is a quantiser, whose gradient follows no rule", _KIND)
    call = case.dump.decode(case.record)
    source, arguments = runner.source(case, call), runner.arguments(case, call)
    numbers = _given(case, arguments)
    try:
        if isinstance(source, StoredOutputs):
            draws = [quantised(_stored(source), wanted)]
        else:
            draws = [quantised(outputs, wanted) for outputs in _runs(case, runner, source, arguments, wanted)]
        return concluded(case, numbers, draws, wanted)
    except BrokenCall as error:
        return concluded(case, numbers, error, wanted)


def _given(case: Case, arguments: Arguments) -> AnyArray:
    """What was quantised: the first floating tensor of at least one dimension."""
    arrays = (leaf.array for leaf in arguments.tensors.values())
    found = next((array for array in arrays if array.ndim and is_floating(array.dtype)), None)
    if found is None:
        raise Unsupported(f"{case.api}: no argument is a floating tensor, which a quantiser is given", _KIND)
    return found


def _stored(source: StoredOutputs) -> list[AnyArray]:
    entry = f"{source.record.name}.forward"
    returned = source.call.returned()
    return [source.files.array(spec, entry, name) for name, spec in returned if isinstance(spec, TensorSpec)]


def _runs(
    case: Case, runner: CaseRunner, source: DeviceSource, arguments: Arguments, wanted: Wanted
) -> list[list[AnyArray]]:
    """What the device gives, once, or as often as stochastic rounding asks."""
    registry, framework = runner.setup.registry, source.framework
    function = registry.calls.get(case.api)
    if function is None:
        found = framework.candidates(case.record.namespace, case.record.api, registry.namespaces)
        function = (found[0].on_device or found[0].lookup)()
    made = []
    for _ in range(DRAWS if wanted.rounding == "stochastic" else 1):
        with source.running():
            run = framework.run(function, arguments.args, arguments.kwargs, Way(source.device, state="users"), None)
        made.append([value for value in run.outputs.values() if isinstance(value, np.ndarray)])
    return made
