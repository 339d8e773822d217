"""`probe`, `probe_case` and `@pytest.mark.probe` in a project's own tests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import DumpMaker, entries, written
from tests.support.running import refusal
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
    "ranges": """
    def test_tensors(probe):
        x = probe.tensor((2, 50), torch.float16, low=-3, high=5)
        assert (x.shape, x.dtype, x.min().item(), x.max().item()) == ((2, 50), torch.float16, -3, 5)
        index = probe.tensor((200,), "int32", low=2, high=4)
        assert (index.dtype, set(index.tolist())) == (torch.int32, {2, 3, 4})
        assert probe.tensor((10,), torch.bool).sum() == 5
        assert probe.tensor((), "complex64").shape == ()
        assert abs(probe.tensor((10_000,)).std().item() - 1) < 0.03
        assert probe.device == "cpu"

    refused = {"dtype": "float31"}, {"low": 1}, {"low": 2, "high": 1}, {"low": float("nan"), "high": 1}

    @pytest.mark.parametrize("kwargs", refused)
    def test_refused(probe, kwargs):
        probe.tensor((3,), **kwargs)
    """,
    "layouts": """
    layouts = torch.t, lambda x: x[:, ::2], lambda x: x[:1].expand(6, 8), lambda x: x[1:, 1:]

    @pytest.mark.parametrize("change", layouts)
    def test_strides(probe, change):
        x = change(probe.tensor((6, 8)))
        seen = []

        def mine(y):
            seen.append((y.stride(), y.shape))
            return y * 2

        probe.check(mine, reference=lambda y: y * 2, inputs=[x], backward=True)
        assert seen == [(x.stride(), x.shape)]
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
    "plain": """
    def test_before(): pass

    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((4, 4))])
    """,
    "empty": "def test_gelu(probe): probe.tensor((3,))",
}
# A check of what cannot be compared, and why.
INCOMPARABLE = [
    ("my_gelu, reference=lambda x: x + {}", "*the reference raised TypeError: *"),
    (
        "my_gelu, reference=lambda x: torch.from_numpy(x.numpy().astype('f'))",
        "*gave output.0 as float32 where its *",
    ),
    ("print, reference=lambda x: None", "*the reference returns nothing and changes no argument: *"),
    ("lambda x: my_gelu(x).detach(), reference=gelu, backward=True", "*no output of the device can be diff*"),
    ("lambda x: my_gelu(x)[:2], reference=gelu", "*shape [[]2, 4[]], the reference has *"),
    ("lambda x: my_gelu(x.add_(1)), reference=lambda x: gelu(x + 1)", "*the device changed this argument; *"),
]
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
SEED = ("--probe-seed=3", "--probe-device=cpu")


def write_dumps(folder: Path) -> None:
    for name in ("dump.json", "data/dump.json"):
        written(folder / name)
    written(folder / "in_place.json", {"Tensor.relu_.0.forward": RELU})
    written(folder / "load.json", {"Torch.load.0.forward": entries()["Torch.load.0.forward"]})
    for rank in ("rank0", "rank1"):
        written(folder / f"dumps/{rank}/dump.json", {"Torch.neg.0.forward": RELU})
    (folder / "cut.json").write_text((folder / "dump.json").read_text()[:-100])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    folder = tmp_path_factory.mktemp("fixtures")
    write_dumps(folder)
    incomparable = {
        f"incomparable_{number}": f"\ndef test_gelu(probe): probe.check({check}, inputs=[probe.tensor((4, 4))])\n"
        for number, (check, _) in enumerate(INCOMPARABLE)
    }
    unusable = {
        f"unusable_{number}": f"\n@pytest.mark.probe({mark})\ndef test_mine(probe_case): pass\n"
        for number, (mark, _) in enumerate(UNUSABLE)
    }
    args = (*SEED, "-vv", "-rA", "--probe-save=failing", "--continue-on-collection-errors")
    return suite(folder, GELU, {**TEXTS, **incomparable, **unusable}, *args)


def run(pytester: pytest.Pytester, name: str, *args: str) -> pytest.RunResult:
    """A run of one of the files alone."""
    write_dumps(pytester.path)
    pytester.makepyfile(test_mine=dedent(GELU) + "\n" + dedent(TEXTS[name]))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("healthy", {"passed": 1}),
        ("failure", {"failed": 1}),
        ("broken", {"failed": 1}),
        ("no_kernel", {"skipped": 1}),
        ("classes", {"failed": 1, "passed": 2}),
        ("own_class", {"failed": 2, "passed": 2}),
        ("ranges", {"passed": 1, "failed": 4}),
        ("layouts", {"passed": 4}),
        ("nested", {"passed": 1}),
        ("marked", {"passed": 4}),
        ("gradients", {"passed": 4, "failed": 2}),
        ("in_place", {"passed": 1, "failed": 2}),
        ("detached", {"failed": 1}),
        ("cannot_run", {"skipped": 1}),
        ("two_dumps", {"passed": 2}),
        ("shown", {"failed": 4}),
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


def test_a_failure_shows_the_items_text_and_the_users_line(told: Suite) -> None:
    found = told.of("failure")
    found.shows(
        ">       probe.check(bad_gelu, *",
        "E       CheckFailed: bad_gelu.1.forward in bfloat16 on cpu: error",
        "E       output.0 [[]64, 32[]] bfloat16: error (noise): off by 0.0*, allowed 0.00*",
        "E         index  *",
        "E         input.0  [[]64, 32[]]  bfloat16  *",
        "E       bad_gelu.1.backward in bfloat16 on cpu: error",
        "E       to reproduce: pytest 'test_failure.py::test_gelu' --probe-device=cpu --probe-seed=3",
    )
    found.shows_not("*pytest_probe/*")
    found.shows_not("E*not reached*")
    told.run.result.stdout.fnmatch_lines(["FAILED test_failure.py::test_gelu - all times 1.0*"])


def test_the_printed_command_fails_again(pytester: pytest.Pytester) -> None:
    text = """
    @pytest.mark.parametrize("name", ["a b", "c"])
    def test_gelu(probe, name):
        probe.check(bad_gelu, reference=gelu, inputs=[probe.tensor((8, 8))])
    """
    pytester.makepyfile(test_mine=dedent(GELU) + dedent(text))
    result = pytester.runpytest("-p", "no:cacheprovider", "--probe-seed=3")
    commands = re.findall(r"to reproduce: pytest (.*)", result.stdout.str())
    assert len(commands) == 2
    for command in commands:
        pytester.runpytest(*shlex.split(command)).assert_outcomes(failed=1)


def test_an_exception_of_the_function_is_shown_where_it_was_raised(told: Suite) -> None:
    found = told.of("broken")
    found.shows(
        '>       raise KeyError("block size")',
        "E       CheckFailed: broken.0.forward on cpu: error",
        "E       cpu raised KeyError: *",
    )
    found.shows_not("*torch_calls.py*")
    found.shows_not("*broken.0.backward*")


@pytest.mark.parametrize("number", range(len(INCOMPARABLE)))
def test_a_check_of_outputs_that_cannot_be_compared_fails(told: Suite, number: int) -> None:
    found = told.of(f"incomparable_{number}")
    assert found.outcomes == {"failed": 1}
    found.shows(INCOMPARABLE[number][1])


def test_no_kernel_on_the_device_skips(told: Suite) -> None:
    assert [(row["verdict"], row["kind"]) for row in told.of("no_kernel").rows] == [
        ("skip", "unsupported by the device")
    ]


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


WARNING = """
    from msgspec.structs import replace

    def pytest_probe_verdict(case, verdict):
        return replace(verdict, verdict="warning", reason="by decree")
"""


def test_a_warning_has_its_letter_and_fails_if_strict(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WARNING)
    for workers in ("-n0", "-n1"):
        result = run(pytester, "plain", workers)
        result.stdout.fnmatch_lines(["1 case, 1 warning", "*1 passed, 1 warned*"])
        result.stdout.no_fnmatch_line("*did not run*")
    run(pytester, "plain", "--probe-strict", "-n1").assert_outcomes(failed=1, passed=1)


def test_the_standard_of_the_run_judges(pytester: pytest.Pytester) -> None:
    result = run(pytester, "classes", "--probe-standard=exact")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["*error (exact)*"])


def test_a_reference_of_torchs_own_has_its_class(told: Suite) -> None:
    """A no-op errs by less than a roundoff of nextafter, as noise sees it."""
    shown = [f"FAILED test_own_class.py::test_{name}*" for name in ("no_op", "replaced")]
    told.run.result.stdout.fnmatch_lines_random(shown)


def test_tensors_depend_on_the_test_the_order_and_the_seed_alone(pytester: pytest.Pytester) -> None:
    run(pytester, "drawn").assert_outcomes(passed=2)
    run(pytester, "drawn", "-k", "2").assert_outcomes(passed=1)
    run(pytester, "drawn", "--probe-seed=1").assert_outcomes(passed=2)
    first, second, alone, other, _ = (pytester.path / "drawn").read_text().splitlines()
    assert alone == second
    assert len({*first.split(), *second.split(), *other.split()}) == 9


def test_the_fixture_says_what_it_refuses(told: Suite) -> None:
    found = told.of("ranges")
    found.shows("*probe.tensor: dtype: 'float31' cannot be used; give one of float64, *did you mean float*")
    found.shows("*probe.tensor: low, high: (1, None) cannot be used; give both, *")
    found.shows_not("*checks.py*")


def test_a_marked_test_runs_once_a_record(told: Suite, pytester: pytest.Pytester) -> None:
    told.run.result.stdout.fnmatch_lines(
        [
            "test_marked.py::test_mine[[]Functional.relu.0[]] PASSED*",
            "test_marked.py::test_mine[[]Functional.relu.0-float16[]] PASSED*",
            "test_marked.py::test_mine[[]Functional.linear.0[]] PASSED*",
            "test_marked.py::test_mine[[]Functional.linear.0-float16[]] PASSED*",
        ]
    )
    run(pytester, "marked", "-m", "probe(api='linear')", "-n1").assert_outcomes(passed=2)


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


def test_a_check_of_an_in_place_record_must_give_its_result(told: Suite) -> None:
    shown = [
        "PASSED test_in_place.py::test_right*",
        *(f"FAILED test_in_place.py::test_{x}*" for x in ("copied", "wrong")),
    ]
    told.run.result.stdout.fnmatch_lines_random(shown)


def test_a_detached_output_of_a_marked_test_fails(told: Suite) -> None:
    told.of("detached").shows("E*no output of the device can be differentiated*")


def test_a_record_that_cannot_run_is_a_skip(told: Suite) -> None:
    found = told.of("cannot_run")
    assert [each["kind"] for each in found.rows] == ["outside the allow-list"]
    found.shows("*load.json: Torch.load.0.forward: Torch.load: torch.load is not *")


def test_two_dumps_have_their_label_in_ids(told: Suite) -> None:
    told.run.result.stdout.fnmatch_lines(["test_two_dumps.py::test_mine[[]rank0/dump.json-Torch.neg.0[]] PASSED*"])


def test_what_is_wrong_with_a_check_is_shown_in_the_test(told: Suite, pytester: pytest.Pytester) -> None:
    found = told.of("shown")
    shown = ["SettingsError: api: 'Typo.name' *", "RecordError: *", "SettingsError: probe.tensor: *", "BrokenCall: *"]
    found.shows(*(f"E  *errors.{words}" for words in shown))
    found.shows_not("*pytest_probe/*:[0-9]*")
    run(pytester, "shown", "--full-trace").stdout.fnmatch_lines(["*pytest_probe/*:[0-9]*"])


@pytest.mark.parametrize("number", range(len(UNUSABLE)))
def test_a_mark_that_cannot_be_used(told: Suite, number: int) -> None:
    found = told.of(f"unusable_{number}")
    assert found.outcomes == {"errors": 1}
    found.shows(UNUSABLE[number][1])
    found.shows_not("*Traceback*")


def test_a_fixture_without_its_mark_and_a_mark_without_its_fixture(told: Suite) -> None:
    told.of("unmarked").shows("*the test needs @pytest.mark.probe(dump=*")
    told.of("unused").shows("*test_mine is marked probe but takes no probe_case*")


def test_recorded_leaves_no_device_for_functions(pytester: pytest.Pytester) -> None:
    result = run(pytester, "empty", "--probe-device=recorded", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*--probe-device=recorded leaves no device for functions of your own"])


def test_a_wrong_ini_value_is_said_without_a_traceback(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nprobe_seed = x\n")
    result = run(pytester, "empty")
    result.stdout.fnmatch_lines(["probe_seed*cannot be used; give a whole number"])
    result.stdout.no_fnmatch_line("*fixtures.py*")
    pytester.makeini("[pytest]\nprobe_seed = 1\nprobe_device = pdp11")
    refusal(pytester).fnmatch_lines(["probe_device in tox.ini: 'pdp11' cannot be used; torch says: *"])


def test_items_of_a_dump_run_beside(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("beside.json", {"Torch.neg.0.forward": RELU})
    result = run(pytester, "plain", "test_mine.py", "--probe-dump=beside.json", "-vv")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["test_mine.py::test_gelu PASSED*", "beside.json::Torch.neg.0.forward *PASSED*"])


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
    run(pytester, "plain", "--probe-device=fake:0").assert_outcomes(failed=1, passed=1)
    run(pytester, "plain", "--probe-device=cpu").assert_outcomes(passed=2)
