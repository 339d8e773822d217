"""Hooks for a project's conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_probe.check import Case
    from pytest_probe.model.result import Result
    from pytest_probe.model.verdict import Verdict
    from pytest_probe.registry import Registry


@pytest.hookspec(historic=True)
def pytest_probe_register(registry: Registry) -> None:
    """Add to what pytest-probe knows: readers, standards, devices, calls, references, namespaces, relations.

    Called once in every process before anything is collected; for a conftest.py that pytest loads later, when it is
    loaded. A device is a function of its name, as --probe-device has it, that gives an object with name, put,
    call and get; "npu:1" is asked of the device registered as "npu". A call replaces how the device makes an API's
    call, a reference what float64 on the CPU computes; both are given the call's own arguments.

        class Accelerator:
            name = "npu"

            def put(self, tensor):
                return tensor.to("npu")

            def call(self, function, args, kwargs):
                return function(*args, **kwargs)

            def get(self, tensor):
                return tensor.cpu()

        def rms_norm(x, gamma, epsilon=1e-6):
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
            return x * scale * gamma, scale

        def pytest_probe_register(registry):
            registry.devices["npu"] = lambda name: Accelerator()
            registry.calls["Functional.gelu"] = torch.compile(torch.nn.functional.gelu)
            registry.references["NPU.npu_rms_norm"] = rms_norm
            registry.namespaces["NPU"] = "torch_npu"
            registry.relations["NPU.npu_rms_norm"] = {"batch": {"input": ":-1"}, "layout": True}
            registry.readers.append(MyReader())
            registry.standards["loose"] = MyStandard()
    """


@pytest.hookspec(firstresult=True)
def pytest_probe_inputs(case: Case, arguments: Any) -> Any | None:
    """Change the inputs of a case, before either side runs; None leaves them as they are.

    `arguments` is what the case's inputs were made into, with `args` and `kwargs`; return one of the same kind.

        def pytest_probe_inputs(case, arguments):
            if case.record.api == "softmax":
                leaf = arguments.args[0]
                args = (msgspec.structs.replace(leaf, array=leaf.array * 10), *arguments.args[1:])
                return msgspec.structs.replace(arguments, args=args)
    """


@pytest.hookspec(firstresult=True)
def pytest_probe_verdict(case: Case, verdict: Verdict) -> Verdict | None:
    """Change the verdict on a case before it is reported; None leaves it as it is.

    def pytest_probe_verdict(case, verdict):
        if case.record.api == "gelu" and verdict.verdict == "error":
            return msgspec.structs.replace(verdict, verdict="warning", reason="known, ticket 123: " + verdict.reason)
    """


def pytest_probe_results(results: Sequence[Result]) -> None:
    """See the results of an item as it ends, in the one process that reports.

    def pytest_probe_results(results):
        for result in results:
            writer.add_scalar(f"seconds/{result.api}", result.duration)
    """
