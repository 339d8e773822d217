"""`probe`, `probe_case` and `@pytest.mark.probe` in a project's own tests."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import entries, written
from tests.support.running import collected, ran
from tests.support.suites import Suite, suite

pytestmark = pytest.mark.compat

GELU = """
    import pytest
    import torch
    from torch.nn.functional import gelu

    def my_gelu(x):
        return gelu(x.float()).to(x.dtype)

    def bad_gelu(x):
        return my_gelu(x) * 1.01
"""

# The files of the one run.
TEXTS = {
    "healthy": """
    def test_gelu(probe):
        x = probe.tensor((64, 32), "bfloat16")
        forward, backward = probe.check(my_gelu, reference=gelu, inputs=[x], backward=True)
        assert (forward.verdict, backward.verdict) == ("pass", "pass")
        assert [output.name for output in backward.outputs] == ["grad.input.0"]
    """,
    "failure": """
    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((64, 32), torch.bfloat16)])
        probe.check(bad_gelu, reference=gelu, inputs=[probe.tensor((64, 32), torch.bfloat16)], backward=True)
        raise RuntimeError("not reached")
    """,
    "broken": """
    def broken(x):
        raise KeyError("block size")

    def test_broken(probe):
        probe.check(broken, reference=gelu, inputs=[probe.tensor((4,))], backward=True)
    """,
    "no_kernel": """
    def no_kernel(x):
        raise NotImplementedError("no kernel for this")

    def test_gelu(probe):
        probe.check(no_kernel, reference=gelu, inputs=[probe.tensor((4, 4))])
    """,
    "results": """
    def test_gelu(probe):
        x = probe.tensor((64, 32), "bfloat16")
        probe.check(my_gelu, reference=gelu, inputs=[x], backward=True, api="Functional.gelu")
        probe.check(bad_gelu, reference=gelu, inputs=[x])
    """,
    "classes": """
    def my_floor(x):
        return torch.floor(x + 0.5)

    def test_noise(probe):
        probe.check(my_floor, reference=torch.floor, inputs=[probe.tensor((64,))])

    def test_discrete(probe):
        probe.check(torch.floor, reference=torch.floor, inputs=[probe.tensor((64,))], api="Torch.floor")

    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((64,))])
    """,
    "own_class": """
    import torch.nn.functional as F

    def first(a, b):
        return a.clone()

    def wrong(x):
        return x * torch.sigmoid(1.6 * x)

    def pair(probe):
        return [probe.tensor((64,)), probe.tensor((64,))]

    def test_right(probe):
        probe.check(torch.nextafter, reference=torch.nextafter, inputs=pair(probe))

    def test_no_op(probe):
        probe.check(first, reference=torch.nextafter, inputs=pair(probe))

    def test_another_class(probe):
        probe.check(first, reference=torch.nextafter, inputs=pair(probe), api="Torch.sub")

    def test_replaced(probe, monkeypatch):
        monkeypatch.setattr(F, "gelu", wrong)
        probe.check(F.gelu, reference=F.gelu, inputs=[probe.tensor((64,))])
    """,
    "drawn": """
    import pathlib

    @pytest.mark.parametrize("n", [1, 2])
    def test_tensors(probe, n):
        tensors = [probe.tensor((3,)), probe.tensor((3,)), probe.tensor((3,), "bfloat16")]
        with pathlib.Path("drawn").open("a") as file:
            print(*(round(each.float()[0].item(), 4) for each in tensors), file=file)
    """,
    "nested": """
    def mine(parts, out, scale=1.0, dtype=None, device=None):
        assert (dtype, device.type) == (torch.float32, "cpu")
        out.copy_(torch.cat(parts) * scale)

    def test_mine(probe):
        parts, out = [probe.tensor((3,)), probe.tensor((4,))], probe.tensor((7,))
        before = out.clone()
        kwargs = {"scale": 0.3, "dtype": torch.float32, "device": torch.device("cpu")}
        def reference(parts, out, scale, dtype, device):
            assert dtype == torch.float64
            out.copy_(torch.cat(parts) * scale)
        [verdict] = probe.check(mine, reference=reference, inputs=[parts, out], kwargs=kwargs)
        assert [output.name for output in verdict.outputs] == ["input.1"]
        assert torch.equal(out, before)
    """,
    "marked": """
    @pytest.mark.probe(dump="data/dump.json", api="Functional.*", dtype=["recorded", "float16"])
    def test_mine(probe_case):
        function = getattr(torch.nn.functional, probe_case.record.api)
        [verdict] = probe_case.check(function(*probe_case.args, **probe_case.kwargs))
        assert verdict.verdict == "pass"
    """,
    "gradients": """
    @pytest.mark.parametrize("wrong", [False, True])
    @pytest.mark.probe(dump="dump.json", api=["Functional.*", "torch.argmax"], direction="both")
    def test_mine(probe_case, wrong):
        owner = torch if probe_case.record.namespace == "Torch" else torch.nn.functional
        out = getattr(owner, probe_case.record.api)(*probe_case.args)
        if wrong and out.requires_grad:
            out.register_hook(lambda gradient: gradient * 1.01)
        probe_case.check(out)
    """,
    "detached": """
    @pytest.mark.probe(dump="dump.json", api="relu", direction="backward")
    def test_mine(probe_case):
        probe_case.check(probe_case.args[0].detach().relu())
    """,
    "cannot_run": """
    @pytest.mark.probe(dump="load.json")
    def test_mine(probe_case):
        raise RuntimeError("not reached")
    """,
    "two_dumps": """
    @pytest.mark.probe(dump="dumps")
    def test_mine(probe_case):
        probe_case.check(-probe_case.args[0])
    """,
    "shown": """
    @pytest.mark.parametrize("number", range(4))
    def test_mine(probe, number):
        if number == 0:
            probe.check(gelu, reference=gelu, inputs=[torch.ones(2)], api="Typo.name")
        if number == 1:
            probe.tensor(like={"dtype": "torch.float99", "shape": [8]})
        if number == 2:
            probe.tensor((3,), "float99")
        probe.check_quantizer(gelu, torch.ones(2, 32), recipe="typo")
    """,
    "unmarked": """
    def test_mine(probe_case): pass
    """,
    "unused": """
    @pytest.mark.probe(dump="dump.json")
    def test_mine(): pass
    """,
    "in_place": """
    @pytest.mark.probe(dump="in_place.json")
    def test_right(probe_case):
        probe_case.check(probe_case.args[0].relu_())

    @pytest.mark.probe(dump="in_place.json")
    def test_copied(probe_case):
        probe_case.check(probe_case.args[0].clone().relu_())

    @pytest.mark.probe(dump="in_place.json")
    def test_wrong(probe_case):
        probe_case.check(probe_case.args[0].mul_(2).relu_())
    """,
    "warned": """
    def warned(x):
        return my_gelu(x)

    def test_before(): pass

    def test_gelu(probe):
        probe.check(warned, reference=gelu, inputs=[probe.tensor((4, 4))])
    """,
    "again": """
    @pytest.mark.parametrize("name", ["a b"])
    def test_gelu(probe, name):
        probe.check(bad_gelu, reference=gelu, inputs=[probe.tensor((8, 8))])
    """,
    "archive": """
    @pytest.mark.probe(dump="run.zip", api="Functional.relu")
    def test_mine(probe_case):
        probe_case.check(probe_case.args[0].relu())
    """,
    "operator": """
    @torch.library.custom_op("mylib::softcap", mutates_args=())
    def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
        return 2 * torch.tanh(x / cap) * cap

    def test_softcap(probe):
        right = lambda x, cap: torch.tanh(x / cap) * cap
        probe.check(softcap, reference=right, inputs=[probe.tensor((4, 5)), 3.0])
    """,
    "grouped": """
    @pytest.mark.parametrize("number", range(3))
    def test_exp(probe, number):
        probe.check(lambda x: 1.5 * torch.exp(x), reference=torch.exp, inputs=probe.tensor((64, 64)))
    """,
    "unsteady": """
    import itertools

    def test_unsteady(probe):
        runs = itertools.count()

        def unsteady(x):
            return torch.exp(x) * (1 + 1e-3 * (next(runs) == 2))

        probe.check(unsteady, reference=torch.exp, inputs=[probe.tensor((8,))])
        assert next(runs) == 1
    """,
    "empty": "def test_gelu(probe): probe.tensor((3,))",
}
# A mark that cannot be used, and why.
UNUSABLE = [
    ("dump='none.json'", "*pytest.mark.probe: dump: 'none.json' cannot be used; there is no such file*"),
    ("dump='dump.json', api='gelu'", "*pytest.mark.probe(dump='dump.json', api='gelu'): no record matches*"),
    ("dump='dump.json', api='Functional.realu'", "*no record matches; did you mean Functional.relu[?]*"),
    ("dump='dump.json', direction='forwad'", "*direction: 'forwad' * give one of both, * (did you mean forward[?])*"),
    ("dump='dump.json', dtype='bflaot16'", "*dtype: 'bflaot16' * give one of recorded, * (did you mean bfloat16[?])*"),
    ("dump='dump.json', apis='gelu'", "*pytest.mark.probe: 'apis' * give one of dump, api, * (did you mean api[?])*"),
    ("api='gelu'", "*give dump=PATH*"),
    ("dump='test_healthy.py'", "*test_healthy.py*"),
    ("dump='cut.json'", "*cut.json*"),
]
RELU = entries()["Functional.relu.0.forward"]
WARNED = """
    from msgspec.structs import replace

    def pytest_probe_verdict(case, verdict):
        if "warned" in case.record.name:
            return replace(verdict, verdict="warning", reason="by decree")
"""


def run(folder: Path, texts: Mapping[str, str], *args: str) -> Suite:
    for name in ("dump.json", "data/dump.json"):
        written(folder / name)
    written(folder / "in_place.json", {"Tensor.relu_.0.forward": RELU})
    written(folder / "load.json", {"Torch.load.0.forward": entries()["Torch.load.0.forward"]})
    for name in ("dumps/rank0", "dumps/rank1", "another"):
        written(folder / f"{name}/dump.json", {"Torch.neg.0.forward": RELU})
    shutil.make_archive(str(folder / "run"), "zip", folder / "data")
    (folder / "cut.json").write_text((folder / "dump.json").read_text()[:-100])
    return suite(folder, GELU, texts, "--probe-device=cpu", *args, conftest=WARNED)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    unusable = {
        f"unusable_{number}": f"\n@pytest.mark.probe({mark})\ndef test_mine(probe_case): pass\n"
        for number, (mark, _) in enumerate(UNUSABLE)
    }
    args = ("--probe-seed=3", "-vv", "-rA", "--probe-save=failing", "--continue-on-collection-errors")
    beside = (".", "--probe-dump=another/dump.json")  # its items run with the tests
    return run(tmp_path_factory.mktemp("fixtures"), {**TEXTS, **unusable}, *args, *beside)


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The same tests with other options, in a worker."""
    texts = {name: TEXTS[name] for name in ("classes", "shown", "warned", "drawn", "unsteady")}
    args = ("--probe-repeat=3", "--probe-standard=exact", "--full-trace", "--probe-strict", "--probe-seed=1", "-n1")
    return run(tmp_path_factory.mktemp("otherwise"), texts, *args)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("healthy", {"passed": 1}),
        ("failure", {"failed": 1}),
        ("broken", {"failed": 1}),
        ("no_kernel", {"skipped": 1}),
        ("classes", {"failed": 1, "passed": 2}),
        ("own_class", {"failed": 2, "passed": 2}),
        ("nested", {"passed": 1}),
        ("marked", {"passed": 4}),
        ("gradients", {"passed": 4, "failed": 2}),
        ("in_place", {"passed": 1, "failed": 2}),
        ("detached", {"failed": 1}),
        ("cannot_run", {"skipped": 1}),
        ("two_dumps", {"passed": 2}),
        ("shown", {"failed": 4}),
        ("warned", {"passed": 2}),
        ("unsteady", {"passed": 1}),
        ("archive", {"passed": 1}),
        ("operator", {"failed": 1}),
        ("grouped", {"failed": 3}),
    ],
)
def test_tests_end_as_their_checks_do(told: Suite, name: str, outcomes: dict[str, int]) -> None:
    assert told.of(name).outcomes == outcomes


def test_a_healthy_function_passes_forward_and_backward(told: Suite) -> None:
    assert [(row["direction"], row["verdict"]) for row in told.of("healthy").rows] == [
        ("forward", "pass"),
        ("backward", "pass"),
    ]
    told.run.result.stdout.fnmatch_lines(["* cases, * pass*"])


def test_checks_are_in_results_and_junit_properties(told: Suite) -> None:
    found = told.of("results").rows
    assert [(each["id"], each["api"], each["direction"], each["verdict"]) for each in found] == [
        ("test_results.py::test_gelu::my_gelu.0.forward", "Functional.gelu", "forward", "pass"),
        ("test_results.py::test_gelu::my_gelu.0.backward", "Functional.gelu", "backward", "pass"),
        ("test_results.py::test_gelu::bad_gelu.1.forward", "bad_gelu", "forward", "error"),
    ]
    assert {each["dtype"] for each in found} == {"bfloat16"}
    cases = ElementTree.parse(told.run.folder / "junit.xml").iter("testcase")
    case = next(each for each in cases if each.get("classname") == "test_results")
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert (properties["probe.verdict"], properties["probe.api"]) == ("error", "bad_gelu")
    assert (told.run.folder / "out/saved/test_results.py::test_gelu/bad_gelu.1.forward.pt").is_file()
    counted = told.run.run["verdicts"]
    assert counted == {verdict: [row["verdict"] for row in told.run.rows].count(verdict) for verdict in counted}
    assert told.run.run["devices"][0]["framework"] == "torch"


def test_gradients_of_a_marked_test(told: Suite) -> None:
    found = sorted((row["api"], row["direction"], row["verdict"]) for row in told.of("gradients").rows)
    assert found == [
        ("Functional.linear", "backward", "error"),
        ("Functional.linear", "backward", "pass"),
        ("Functional.linear", "forward", "pass"),
        ("Functional.linear", "forward", "pass"),
        ("Functional.relu", "backward", "error"),
        ("Functional.relu", "backward", "pass"),
        ("Functional.relu", "forward", "pass"),
        ("Functional.relu", "forward", "pass"),
        ("Torch.argmax", "forward", "pass"),
        ("Torch.argmax", "forward", "pass"),
    ]


# What the failures of a file say, and what they do not.
SHOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "failure": (
        (
            ">       probe.check(bad_gelu, *",
            "E       CheckFailed: bad_gelu.1.forward in bfloat16 on cpu: error",
            "E       output.0 [[]64, 32[]] bfloat16: error (noise): off by 0.0*, allowed 0.00*",
            "E         index  *",
            "E         input.0  [[]64, 32[]]  bfloat16  *",
            "E       bad_gelu.1.backward in bfloat16 on cpu: error",
            "E       to reproduce: pytest 'test_failure.py::test_gelu' --probe-device=cpu --probe-seed=3",
        ),
        ("*pytest_probe/*", "E*not reached*"),
    ),
    "broken": (
        (
            '>       raise KeyError("block size")',
            "E       CheckFailed: broken.0.forward on cpu: error",
            "E       cpu raised KeyError: *",
        ),
        ("*torch_calls.py*", "*broken.0.backward*"),
    ),
    "operator": (("E*mylib::softcap.0.forward in float32 on cpu: error",), ("*CustomOpDef*",)),
    "grouped": (("E*to reproduce: *",) * 3, ()),
    "detached": (("E*no output of the device can be differentiated*",), ()),
    "cannot_run": (("*load.json: Torch.load.0.forward: Torch.load: torch.load is not *",), ()),
    "unmarked": (("*the test needs @pytest.mark.probe(dump=*",), ()),
    "unused": (("*test_mine is marked probe but takes no probe_case*",), ()),
    **{f"unusable_{number}": ((reason,), ("*Traceback*",)) for number, (_, reason) in enumerate(UNUSABLE)},
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_wrong_is_shown_where_the_user_wrote_it(told: Suite, name: str) -> None:
    found, (shown, hidden) = told.of(name), SHOWN[name]
    found.shows(*shown)
    for pattern in hidden:
        found.shows_not(pattern)
    assert not name.startswith("unusable") or found.outcomes == {"errors": 1}


def test_each_test_of_a_file_ends_as_its_own_check_does(told: Suite) -> None:
    """A no-op errs by less than a roundoff of nextafter, as noise sees it; an in-place call must give its result."""
    told.run.result.stdout.fnmatch_lines_random(
        [
            *(f"FAILED test_own_class.py::test_{name}*" for name in ("no_op", "replaced")),
            "PASSED test_in_place.py::test_right*",
            *(f"FAILED test_in_place.py::test_{name}*" for name in ("copied", "wrong")),
            "FAILED test_failure.py::test_gelu - all times 1.0*",
            "3 errors: looks like all times 1.5, lambda, first at test_grouped.py:*",
            "test_two_dumps.py::test_mine[[]rank0/dump.json-Torch.neg.0[]] PASSED*",
        ]
    )
    kinds = {name: {row["kind"] for row in told.of(name).rows} for name in ("no_kernel", "cannot_run")}
    assert kinds == {"no_kernel": {"unsupported by the device"}, "cannot_run": {"outside the allow-list"}}


def test_the_printed_command_fails_again_with_the_same_tensors(told: Suite, otherwise: Suite) -> None:
    """They depend on the test, the order and the seed alone."""
    (command,) = re.findall(r"to reproduce: pytest ('test_again.py.*)", told.of("again").text)
    folder = told.run.folder
    first, second = (folder / "drawn").read_text().splitlines()
    ran(folder, *shlex.split(command), "test_drawn.py::test_tensors[2]").result.assert_outcomes(failed=1, passed=1)
    assert (folder / "drawn").read_text().splitlines()[2:] == [second]
    other, _ = (otherwise.run.folder / "drawn").read_text().splitlines()
    assert len({*first.split(), *second.split(), *other.split()}) == 9


def test_functions_are_repeated(otherwise: Suite) -> None:
    otherwise.of("unsteady").shows("E*CheckFailed: unsteady.0.forward*", "E*note: non-deterministic: 1 of 3 *")


def test_a_warning_has_its_letter_and_fails_if_strict(told: Suite, otherwise: Suite) -> None:
    told.run.result.stdout.fnmatch_lines(["* 1 warning, *", "*, 1 warned*"])
    assert otherwise.of("warned").outcomes == {"failed": 1, "passed": 1}
    for each in (told, otherwise):
        each.run.result.stdout.no_fnmatch_line("*did not run*")


def test_the_standard_of_the_run_judges(otherwise: Suite) -> None:
    assert otherwise.of("classes").outcomes == {"failed": 2, "passed": 1}
    otherwise.of("classes").shows("*error (exact)*")


def test_a_marked_test_runs_once_a_record(told: Suite) -> None:
    ids = [f"test_marked.py::test_mine[{record}{dtype}]" for record in ("Functional.relu.0", "Functional.linear.0")
           for dtype in ("", "-float16")]  # fmt: skip
    lines = [line.partition(" ") for line in told.run.result.outlines if line.startswith("test_marked.py")]
    assert [(name, how.split()[0]) for name, _, how in lines] == [(name, "PASSED") for name in ids]
    told.run.result.stdout.fnmatch_lines(["another/dump.json::Torch.neg.0.forward *PASSED*"])


def test_a_marked_test_is_selected_by_its_record(told: Suite, pytester: pytest.Pytester) -> None:
    shutil.copytree(told.run.folder / "data", pytester.path / "data")
    shutil.copy(told.run.folder / "test_marked.py", pytester.path)
    found = collected(pytester, "-m", "probe(api='linear')", "--probe-device=cpu")
    assert found == [f"test_marked.py::test_mine[Functional.linear.0{dtype}]" for dtype in ("", "-float16")]


def test_what_is_wrong_with_a_check_is_shown_in_the_test(told: Suite, otherwise: Suite) -> None:
    found = told.of("shown")
    shown = ["SettingsError: api: 'Typo.name' *", "RecordError: *", "SettingsError: probe.tensor: *", "BrokenCall: *"]
    found.shows(*(f"E  *errors.{words}" for words in shown))
    found.shows_not("*pytest_probe/*:[0-9]*")
    otherwise.of("shown").shows("*pytest_probe/*:[0-9]*")


def test_recorded_leaves_no_device_for_functions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEXTS["empty"])
    result = pytester.runpytest("--probe-device=recorded", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*--probe-device=recorded leaves no device for functions of your own"])


def test_a_wrong_ini_value_is_said_without_a_traceback(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEXTS["empty"])
    pytester.makeini("[pytest]\nprobe_seed = x\n")
    result = pytester.runpytest()
    result.stdout.fnmatch_lines(["probe_seed*cannot be used; give a whole number"])
    result.stdout.no_fnmatch_line("*fixtures.py*")


def test_generated_values_reach_a_custom_device(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        class Device:
            def __init__(self, name): self.name = name
            def put(self, tensor): return tensor + 0
            def call(self, function, args, kwargs): return function(*args, **kwargs) * 1.01
            def get(self, tensor): return tensor

        def pytest_probe_register(registry):
            registry.devices["fake"] = Device
        """
    )
    pytester.makepyfile(test_mine=dedent(GELU) + dedent(TEXTS["warned"]))
    pytester.runpytest("--probe-device=fake:0").assert_outcomes(failed=1, passed=1)
