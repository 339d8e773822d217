"""What a project's conftest.py can change."""

from __future__ import annotations

import pytest

from pytest_probe.reports.results_file import read_results
from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.running import collected


def run(pytester: pytest.Pytester, conftest: str, *args: str) -> dict[str, int]:
    pytester.makeconftest(conftest)
    return pytester.runpytest("--probe-dump=dump.json", "--probe-direction=forward", *args).parseoutcomes()


def test_a_registered_namespace_is_checked_against_its_reference(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump(data={"Mine.double.0.forward": forward(tensor(4), output=tensor(4))})
    pytester.makepyfile(my_kernels="def double(x): return x + x")
    conftest = """
        def pytest_probe_register(registry):
            registry.namespaces["Mine"] = "my_kernels"
            registry.references["Mine.double"] = lambda x: x * {factor}
    """
    pytester.syspathinsert()
    assert run(pytester, conftest.format(factor=2)) == {"passed": 1}
    assert run(pytester, conftest.format(factor=3)) == {"failed": 1}
    assert run(pytester, "") == {"skipped": 1}
    assert run(pytester, "", "-o", "probe_namespaces=Mine=my_kernels") == {"passed": 1}


def test_a_namespace_is_the_module_that_is_imported_now(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """An earlier run of this process, as in a notebook, had another module of that name."""
    make_dump(data={"Mine.double.0.forward": forward(tensor(4), output=tensor(4))})
    pytester.syspathinsert()
    for text, outcome in (("", "skipped"), ("def double(x): return x + x", "passed")):
        (pytester.path / "my_kernels.py").write_text(text)
        conftest = """
            def pytest_probe_register(registry):
                registry.namespaces["Mine"] = "my_kernels"
                registry.references["Mine.double"] = lambda x: x * 2
        """
        assert run(pytester, conftest) == {outcome: 1}


def test_inputs_are_changed_before_either_side_runs(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    conftest = """
        from msgspec.structs import replace

        def pytest_probe_register(registry):
            registry.calls["Functional.relu"] = lambda x: x.clamp(min=0, max=5)

        def pytest_probe_inputs(case, arguments):
            leaf = arguments.args[0]
            return replace(arguments, args=(replace(leaf, array=leaf.array * {factor}), *arguments.args[1:]))
    """
    assert run(pytester, conftest.format(factor=1), "--probe-api=relu") == {"passed": 1}
    assert run(pytester, conftest.format(factor=100), "--probe-api=relu") == {"failed": 1}


def test_a_standard_can_be_added_and_named(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    conftest = """
        from pytest_probe.model.verdict import OutputVerdict

        class Never:
            name = "never"

            def judge(self, question):
                return OutputVerdict(question.name, question.actual.shape, "float32", "error", "never", "by principle")

        def pytest_probe_register(registry):
            registry.standards["never"] = Never()
    """
    assert run(pytester, conftest, "--probe-api=relu", "--probe-standard=never") == {"failed": 1}


def test_a_verdict_that_cannot_be_written_costs_its_own_case_alone(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    conftest = """
        from msgspec.structs import replace

        def pytest_probe_verdict(case, verdict):
            if case.record.api == "relu":
                return replace(verdict, notes=(3,))
            outputs = tuple(replace(output, metrics={"mine": {1, 2}}) for output in verdict.outputs)
            return replace(verdict, outputs=outputs) if case.record.api == "linear" else verdict
    """
    found = run(pytester, conftest, "--probe-out=out")
    kept = {result.api: result for result in read_results(pytester.path / "out/results.jsonl")}
    wrong = {api: result.reason for api, result in kept.items() if result.verdict == "error"}
    assert wrong == {
        "Functional.relu": "the verdict cannot be written: AttributeError: 'int' object has no attribute 'isascii'",
        "Functional.linear": "the result cannot be written: Expected `bool | int | float | str | null`, got "
        "`array` - at `$.outputs[0].metrics[...]`",
    }
    assert found == {"failed": 2, "passed": 1, "skipped": 1}


def test_a_reader_can_be_added(pytester: pytest.Pytester) -> None:
    (pytester.path / "calls.txt").write_text("my format\n")
    conftest = """
        from pytest_probe.model.dump import Call, Dump, Record, TensorSpec

        class Reader:
            name = "mine"

            def sniff(self, path, head):
                return head.startswith(b"my format")

            def read(self, path):
                x = TensorSpec("float32", (3,), 1.0, -1.0, 0.0, 1.0)
                record = Record("Torch.neg.0", "Torch", "neg", 0, b"")
                return Dump(path, "pytorch", "", "", (record,), lambda record: Call((x,), {}, (x,), None), lambda e: ())

        def pytest_probe_register(registry):
            registry.readers.insert(0, Reader())
    """
    pytester.makeconftest(conftest)
    pytester.runpytest("--probe-dump=calls.txt").assert_outcomes(passed=1)
    assert collected(pytester, "calls.txt::Torch.neg.0.forward") == ["calls.txt::Torch.neg.0.forward"]


def test_a_device_is_given_the_function_that_the_record_names(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    conftest = """
        import torch

        class Wrong:
            def __init__(self, name):
                self.name = name

            def put(self, tensor):
                return tensor

            get = put

            def call(self, function, args, kwargs):
                result = function(*args, **kwargs)
                return result * 2 if function is torch.nn.functional.linear else result

        def pytest_probe_register(registry):
            registry.devices["wrong"] = Wrong
    """
    args = ["--probe-device=wrong", "--probe-api=relu", "--probe-api=linear"]
    assert run(pytester, conftest, *args) == {"failed": 1, "passed": 1}
