"""What a project's own code does wrong fails its item, or the run before collection, with its own lines alone."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import DumpMaker, forward, tensor
from tests.support.running import refusal

REGISTER = "def pytest_probe_register(registry):\n    "
# Each API's own hook is wrong, and so is the standard s, and the reader of other.json.
FAILING = """
    from msgspec.structs import replace

    def raising(*args):
        return 1 / 0

    def pytest_probe_inputs(case, arguments):
        return 3 if case.record.api == "tanh" else None

    def pytest_probe_verdict(case, verdict):
        return replace(verdict, verdict="bogus") if case.record.api == "sin" else None

    class Standard:
        name = "s"

        def judge(self, question):
            return 1 / 0

    class Reader:
        name = "r"

        def sniff(self, path, head):
            return 1 / 0 if path.name == "other.json" else False

    def pytest_probe_register(registry):
        registry.references["Torch.relu"] = registry.calls["Torch.exp"] = raising
        registry.references["Torch.abs"] = lambda x: 3
        registry.standards["s"] = Standard()
        registry.readers.insert(0, Reader())
"""
APIS = ("relu", "abs", "tanh", "sin", "exp")
SHOWN = [
    ["the reference registered for Torch.relu raised ZeroDivisionError: *", "  *conftest.py:4: return 1 / 0"],
    ["the reference registered for Torch.abs gave int, recorded: float32[[]2, 3[]]"],
    ["pytest_probe_inputs returned int 3, *"],
    ["pytest_probe_verdict returned the verdict 'bogus', expected one of skip, *"],
    ["cpu raised ZeroDivisionError: division by zero", "  *conftest.py:4: return 1 / 0"],
    ["*other.json: the reader r, asked to sniff, raised ZeroDivisionError: *", "  *conftest.py:22: return 1 / 0 if *"],
]


def test_an_error_in_a_hook_fails_its_item(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    x = tensor(2, 3, requires_grad=False)
    dump = make_dump(data={f"Torch.{api}.0.forward": forward(x, output=x) for api in APIS})
    dump.with_name("other.json").write_bytes(dump.read_bytes())
    pytester.makeconftest(FAILING)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-device=cpu", "--probe-dump=other.json")
    result.assert_outcomes(failed=len(SHOWN))
    for lines in SHOWN:
        result.stdout.fnmatch_lines(lines)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_an_error_of_a_standard_fails_its_item(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makeconftest(FAILING)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=argmax", "--probe-standard=s")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["the standard s raised ZeroDivisionError: *", "  *conftest.py:16: return 1 / 0"])


@pytest.mark.parametrize(
    ("conftest", "args", "line"),
    [
        (f"{REGISTER}1/0", [], "pytest_probe_register raised ZeroDivisionError: *"),
        (f"{REGISTER}registry.devices['a'] = lambda name: 3", ["--probe-device=a"], "*registered for a is int*"),
        (
            f"class D:\n    put = call = get = None\n    @property\n    def name(self): return 1/0\n"
            f"{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "the device registered for a raised ZeroDivisionError: *",
        ),
        (
            f"class D:\n    name = 3.5\n    put = call = get = 0\n{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "the device registered for a has the name float 3.5, expected text, as 'a'",
        ),
        (
            f"class D:\n    def __repr__(self): return 1/0\n{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "*registered for a is D (its repr raised ZeroDivisionError) without name, put, call, get*",
        ),
    ],
)
def test_an_error_of_registration_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, conftest: str, args: list[str], line: str
) -> None:
    make_dump()
    pytester.makeconftest(conftest)
    refusal(pytester, "--probe-dump=dump.json", *args).fnmatch_lines([line])


# -q shows no header.
@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["header", "end"])
def test_names_that_match_no_record_are_suggested(
    pytester: pytest.Pytester, make_dump: DumpMaker, quiet: list[str]
) -> None:
    make_dump()
    pytester.makeconftest(f"{REGISTER}registry.references['Functional.linaer'] = abs")
    args = ("--probe-dump=dump.json", "--probe-api=relu", "--probe-api=Functional.rleu", *quiet)
    pytester.runpytest(*args).stdout.fnmatch_lines(
        [
            "probe: --probe-api: Functional.rleu matches no record; did you mean Functional.relu[?]",
            "probe: registry.references: Functional.linaer matches no record; did you mean Functional.linear[?]",
        ]
    )
