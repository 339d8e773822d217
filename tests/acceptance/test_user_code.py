"""What a project's own code does wrong fails its item, or the run before collection, with its own lines alone."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import DumpMaker

REGISTER = "def pytest_probe_register(registry):\n    "
RAISING = "def raising(*args):\n    return 1/0\n"


def run(pytester: pytest.Pytester, make_dump: DumpMaker, conftest: str, *args: str) -> pytest.RunResult:
    make_dump()
    pytester.makeconftest(conftest)
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-api=relu", "--probe-direction=forward", *args)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    return result


@pytest.mark.parametrize(
    ("conftest", "args", "lines"),
    [
        (
            f"{RAISING}{REGISTER}registry.references['Functional.relu'] = raising",
            [],
            [
                "the reference registered for Functional.relu raised ZeroDivisionError: *",
                "  *conftest.py:2: return 1/0",
            ],
        ),
        (
            f"{REGISTER}registry.references['Functional.relu'] = lambda x: 3",
            [],
            ["the reference registered for Functional.relu gave int, recorded: float32[[]2, 3[]]"],
        ),
        ("def pytest_probe_inputs(case, arguments): return 3", [], ["pytest_probe_inputs returned int 3, *"]),
        (
            "from msgspec.structs import replace\n"
            "def pytest_probe_verdict(case, verdict): return replace(verdict, verdict='bogus')",
            [],
            ["pytest_probe_verdict returned the verdict 'bogus', expected one of skip, *"],
        ),
        (
            f"class S:\n    name = 's'\n    def judge(self, q): return 1/0\n{REGISTER}registry.standards['s'] = S()",
            ["--probe-standard=s"],
            ["the standard s raised ZeroDivisionError: *", "  *conftest.py:3: def judge*"],
        ),
        (
            f"{RAISING}{REGISTER}registry.calls['Functional.relu'] = raising",
            ["--probe-device=cpu"],
            ["cpu raised ZeroDivisionError: division by zero", "  *conftest.py:2: return 1/0"],
        ),
        (
            "class R:\n    name = 'r'\n    def sniff(self, path, head): return 1/0\n"
            f"{REGISTER}registry.readers.insert(0, R())",
            [],
            ["*dump.json: the reader r, asked to sniff, raised ZeroDivisionError: *", "  *conftest.py:3: def sniff*"],
        ),
    ],
)
def test_an_error_in_a_hook_fails_its_item(
    pytester: pytest.Pytester, make_dump: DumpMaker, conftest: str, args: list[str], lines: list[str]
) -> None:
    result = run(pytester, make_dump, conftest, *args)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(
    ("conftest", "args", "line"),
    [
        (f"{REGISTER}1/0", [], "ERROR: pytest_probe_register raised ZeroDivisionError: *"),
        (f"{REGISTER}registry.devices['a'] = lambda name: 3", ["--probe-device=a"], "ERROR: *registered for a is int*"),
        (
            f"class D:\n    put = call = get = None\n    @property\n    def name(self): return 1/0\n"
            f"{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "ERROR: the device registered for a raised ZeroDivisionError: *",
        ),
        (
            f"class D:\n    name = 3.5\n    put = call = get = 0\n{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "ERROR: the device registered for a has the name float 3.5, expected text, as 'a'",
        ),
        (
            f"class D:\n    def __repr__(self): return 1/0\n{REGISTER}registry.devices['a'] = lambda name: D()",
            ["--probe-device=a"],
            "ERROR: *registered for a is D (its repr raised ZeroDivisionError) without name, put, call, get*",
        ),
        ("", ["-o", "probe_namespaces=NPU=nosuch"], "ERROR: probe_namespaces: 'NPU=nosuch' *no module nosuch*"),
        ("", ["-o", "probe_seed=x"], "ERROR: probe_seed: 'x' cannot be used; give a whole number"),
        ("", ["--probe-device="], "ERROR: --probe-device: '' cannot be used; give a value, or leave the option out"),
        ("", ["--probe-api="], "ERROR: --probe-api: '' cannot be used; give a value, or leave the option out"),
    ],
)
def test_an_error_of_registration_is_a_usage_error(
    pytester: pytest.Pytester, make_dump: DumpMaker, conftest: str, args: list[str], line: str
) -> None:
    result = run(pytester, make_dump, conftest, *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])


# -q shows no header.
@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["header", "end"])
def test_names_that_match_no_record_are_suggested(
    pytester: pytest.Pytester, make_dump: DumpMaker, quiet: list[str]
) -> None:
    conftest = f"{REGISTER}registry.references['Functional.linaer'] = abs"
    run(pytester, make_dump, conftest, "--probe-api=Functional.rleu", *quiet).stdout.fnmatch_lines(
        [
            "probe: --probe-api: Functional.rleu matches no record; did you mean Functional.relu[?]",
            "probe: registry.references: Functional.linaer matches no record; did you mean Functional.linear[?]",
        ]
    )


@pytest.mark.usefixtures("planted")
def test_warnings_are_listed(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", "-v", "--probe-api=linear")
    result.stdout.fnmatch_lines(
        ["*linear.0.forward*WARNED*", "warnings:", "  *::*linear.0.forward", "    *max ULP 4096"]
    )
