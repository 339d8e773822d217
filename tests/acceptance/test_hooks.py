"""What a project's conftest.py can change; what its own code does wrong fails its item, or the run before collection,
with its own lines alone."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from tests.acceptance.conftest import DumpMaker, Probed, entries, forward, tensor, written
from tests.support.other_plugins import Ran
from tests.support.running import collected, ran, refusal

# Each API's own hook does something else; so does the reader of other.json.
CONFTEST = """
    import pytest
    import torch
    from msgspec.structs import replace

    from pytest_probe.model.dump import Call, Dump, Record, TensorSpec

    def raising(*args):
        return 1 / 0

    def pytest_probe_inputs(case, arguments):
        if case.record.name == "Functional.relu.1":
            leaf = arguments.args[0]
            return replace(arguments, args=(replace(leaf, array=leaf.array * 100), *arguments.args[1:]))
        return 3 if case.record.api == "tanh" else None

    def pytest_probe_verdict(case, verdict):
        match case.record.api:
            case "sin":
                return replace(verdict, verdict="bogus")
            case "cos": raise RuntimeError('broken')
            case "neg":
                return replace(verdict, notes=(3,))
            case "square":
                outputs = tuple(replace(output, metrics={"mine": {1, 2}}) for output in verdict.outputs)
                return replace(verdict, outputs=outputs)

    class Wrong:
        def __init__(self, name):
            self.name = name

        def put(self, tensor):
            return tensor

        get = put

        def call(self, function, args, kwargs):
            result = function(*args, **kwargs)
            return result * 2 if function is torch.nn.functional.linear else result

    class Reader:
        name = "mine"

        def sniff(self, path, head):
            return 1 / 0 if path.name == "other.json" else head.startswith(b"my format")

        def read(self, path):
            x = TensorSpec("float32", (3,), 1.0, -1.0, 0.0, 1.0)
            record = Record("Torch.neg.0", "Torch", "ceil", 0, b"")
            return Dump(path, "pytorch", "", "", (record,), lambda record: Call((x,), {}, (x,), None), lambda e: ())

    def pytest_probe_register(registry):
        registry.namespaces["Mine"] = "my_kernels"
        for api, factor in (("double", 2), ("triple", 2)):
            registry.references[f"Mine.{api}"] = lambda x, factor=factor: x * factor
        registry.calls["Functional.relu"] = lambda x: x.clamp(min=0, max=5)
        registry.references["Torch.relu"] = registry.calls["Torch.exp"] = raising
        registry.references["Torch.abs"] = lambda x: 3
        registry.readers.insert(0, Reader())
        registry.devices["wrong"] = Wrong

    def pytest_collection_modifyitems(items):
        for item in items:
            if item.name == "Torch.floor.0.forward":
                item.add_marker(pytest.mark.skip(reason="not today"))

    def pytest_runtest_setup(item):
        if "round" in item.name:
            pytest.fail("Timeout (>1.0s) from pytest-timeout.")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(item):
        assert "trunc" not in item.name
"""
LINEAR = "Functional.linear.0.forward"
# Each item's verdict, and how its reason begins.
FOUND = {
    "Mine.double.0.forward": ("pass", ""),
    "Mine.triple.0.forward": ("error", "output.0: "),
    "Other.double.0.forward": ("skip", ""),
    "Ini.double.0.forward": ("pass", ""),
    LINEAR: ("error", "output.0: "),  # the device is given the function that the record names
    "Functional.relu.0.forward": ("pass", ""),
    "Functional.relu.1.forward": ("error", "output.0: "),
    "Torch.relu.0.forward": ("error", "the reference registered for Torch.relu raised ZeroDivisionError: "),
    "Torch.abs.0.forward": ("error", "the reference registered for Torch.abs gave int, recorded: float32[2, 3]"),
    "Torch.tanh.0.forward": ("error", "pytest_probe_inputs returned int 3, "),
    "Torch.sin.0.forward": ("error", "pytest_probe_verdict returned the verdict 'bogus', expected one of skip, "),
    "Torch.cos.0.forward": ("error", "pytest_probe_verdict raised RuntimeError: broken"),
    "Torch.exp.0.forward": ("error", "wrong raised ZeroDivisionError: division by zero"),
    "Torch.neg.0.forward": (
        "error", "the verdict cannot be written: AttributeError: 'int' object has no attribute 'isascii'"
    ),
    "Torch.square.0.forward": (
        "error", "the result cannot be written: Expected `bool | int | float | str | null`, got `array` - at "
        "`$.outputs[0].metrics[...]`",
    ),
    "Torch.floor.0.forward": ("skip", "not today"),
    "Torch.round.0.forward": ("error", "Timeout (>1.0s) from pytest-timeout."),
    "Torch.trunc.0.forward": ("pass", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("hooks")
    x = tensor(2, 3, requires_grad=False)
    written(folder / "dump.json", {name: forward(x, output=x) for name in FOUND} | {LINEAR: entries()[LINEAR]})
    written(folder / "other.json")
    (folder / "calls.txt").write_text("my format\n")
    (folder / "conftest.py").write_text(dedent(CONFTEST))
    (folder / "my_kernels.py").write_text("def double(x): return x + x\ndef triple(x): return x * 3\n")
    dumps = [f"--probe-dump={name}" for name in ("dump.json", "other.json", "calls.txt")]
    options = ("-o", "pythonpath=.", "-o", "probe_namespaces=Ini=my_kernels", "--junitxml=junit.xml", "-vv")
    return ran(folder, *dumps, *options, "--probe-device=wrong", "--probe-out=out")


@pytest.mark.parametrize("name", FOUND)
def test_a_hook_decides_of_its_own_case_alone(planted: Ran, name: str) -> None:
    (row,) = (row for row in planted.rows if row["id"] == f"dump.json::{name}")
    assert row["verdict"] == FOUND[name][0]
    assert row["reason"].startswith(FOUND[name][1])


def test_an_error_in_a_hook_shows_its_own_line_alone(planted: Ran) -> None:
    shown = planted.result.stdout
    for lines in (
        ["the reference registered for Torch.relu raised ZeroDivisionError: *", "  *conftest.py:*: return 1 / 0"],
        ["pytest_probe_verdict raised RuntimeError: broken", "  *conftest.py:*: case *cos*: raise *"],
        ["wrong raised ZeroDivisionError: division by zero", "  *conftest.py:*: return 1 / 0"],
        ["*other.json: the reader mine, asked to sniff, raised ZeroDivisionError: *", "  *: return 1 / 0 if *"],
    ):
        shown.fnmatch_lines(lines)
    assert "INTERNALERROR" not in shown.str() + planted.result.stderr.str()
    outcomes = planted.result.parseoutcomes()
    # One of a setup, which has a result, and one of a teardown, which has none.
    assert (outcomes["errors"], len(planted.rows)) == (2, len(FOUND) + 2)


def test_a_reader_can_be_added(planted: Ran) -> None:
    (row,) = (row for row in planted.rows if row["id"].startswith("calls.txt"))
    assert (row["id"], row["verdict"]) == ("calls.txt::Torch.neg.0.forward", "pass")


def test_a_file_of_an_added_reader_is_a_path_of_the_command_line(pytester: pytest.Pytester, planted: Ran) -> None:
    pytester.syspathinsert()
    for name in ("conftest.py", "calls.txt", "my_kernels.py"):
        (pytester.path / name).write_bytes((planted.folder / name).read_bytes())
    assert collected(pytester, "calls.txt::Torch.neg.0.forward") == ["calls.txt::Torch.neg.0.forward"]


def test_a_namespace_is_the_module_that_is_imported_now(pytester: pytest.Pytester, probed: Probed) -> None:
    """An earlier run of this process, as in a notebook, had another module of that name."""
    data = {"Mine.double.0.forward": forward(tensor(4), output=tensor(4))}
    conftest = """
        def pytest_probe_register(registry):
            registry.namespaces["Mine"] = "my_kernels"
            registry.references["Mine.double"] = lambda x: x * 2
    """
    pytester.syspathinsert()
    for text, outcome in (("", "skipped"), ("def double(x): return x + x", "passed")):
        (pytester.path / "my_kernels.py").write_text(text)
        assert probed(data=data, conftest=conftest).result.parseoutcomes() == {outcome: 1}


STANDARD = """
    from pytest_probe.model.verdict import OutputVerdict

    class Mine:
        name = "mine"

        def judge(self, question):
            if question.actual.dtype.kind == "i":
                return 1 / 0
            return OutputVerdict(question.name, question.actual.shape, "float32", "error", "mine", "by principle")

    def pytest_probe_register(registry):
        registry.standards["mine"] = Mine()
"""


def test_a_standard_can_be_added_and_an_error_of_it_fails_its_item(probed: Probed) -> None:
    found = probed("--probe-standard=mine", "--probe-api=relu", "--probe-api=argmax", conftest=STANDARD)
    reasons = {row["reason"].partition(": division")[0] for row in found.rows}
    assert reasons == {"output.0: by principle", "grad.input.0: by principle", f"the standard mine raised {ZERO}"}
    found.result.stdout.fnmatch_lines([f"the standard mine raised {ZERO}: *", "  *conftest.py:8: return 1 / 0"])


ZERO = "ZeroDivisionError"
REGISTER = "def pytest_probe_register(registry):\n    "
OWN = f"{REGISTER}registry.devices['a'] = lambda name: "
# A wrong registration, and the one line that refuses the run with --probe-device=a.
REFUSED: dict[str, Any] = {
    f"{REGISTER}1/0": "pytest_probe_register raised ZeroDivisionError: *",
    f"{OWN}3": "*registered for a is int*",
    f"class D:\n    put = call = get = None\n    @property\n    def name(self): return 1/0\n{OWN}D()":
    "the device registered for a raised ZeroDivisionError: *",
    f"class D:\n    name = 3.5\n    put = call = get = 0\n{OWN}D()":
    "the device registered for a has the name float 3.5, expected text, as 'a'",
    f"class D:\n    def __repr__(self): return 1/0\n{OWN}D()":
    "*registered for a is D (its repr raised ZeroDivisionError) without name, put, call, get*",
}  # fmt: skip


@pytest.mark.parametrize("conftest", REFUSED)
def test_an_error_of_registration_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, conftest: str
) -> None:
    make_dump()
    pytester.makeconftest(conftest)
    refusal(pytester, "--probe-dump=dump.json", "--probe-device=a").fnmatch_lines([REFUSED[conftest]])
