"""`probe`, `probe_case` and `@pytest.mark.probe` in a project's own tests."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.acceptance.conftest import DumpMaker, entries

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


def run(pytester: pytest.Pytester, text: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=dedent(GELU) + dedent(text))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out/results.jsonl").read_text().splitlines()]


def test_a_healthy_function_passes_forward_and_backward(pytester: pytest.Pytester) -> None:
    text = """
    def test_gelu(probe):
        x = probe.tensor((64, 32), "bfloat16")
        forward, backward = probe.check(my_gelu, reference=gelu, inputs=[x], backward=True)
        assert (forward.verdict, backward.verdict) == ("pass", "pass")
        assert [output.name for output in backward.outputs] == ["grad.input.0"]
    """
    result = run(pytester, text)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["2 cases, 2 pass"])


def test_a_failure_shows_the_items_text_and_the_users_line(pytester: pytest.Pytester) -> None:
    text = """
    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((64, 32), torch.bfloat16)])
        probe.check(bad_gelu, reference=gelu, inputs=[probe.tensor((64, 32), torch.bfloat16)], backward=True)
        raise RuntimeError("not reached")
    """
    result = run(pytester, text, "--probe-seed=3", "--probe-device=cpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       probe.check(bad_gelu, *",
            "E       CheckFailed: bad_gelu.1.forward in bfloat16 on cpu: error",
            "E       output.0 [[]64, 32[]] bfloat16: error (noise): off by 0.0*, allowed 0.00*",
            "E         index  *",
            "E         input.0  [[]64, 32[]]  bfloat16  *",
            "E       bad_gelu.1.backward in bfloat16 on cpu: error",
            "E       to reproduce: pytest 'test_mine.py::test_gelu' --probe-device=cpu --probe-seed=3",
            "FAILED test_mine.py::test_gelu - all times 1.0*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_probe/*")
    result.stdout.no_fnmatch_line("*not reached*")


def test_the_printed_command_fails_again(pytester: pytest.Pytester) -> None:
    text = """
    @pytest.mark.parametrize("name", ["a b", "c"])
    def test_gelu(probe, name):
        probe.check(bad_gelu, reference=gelu, inputs=[probe.tensor((8, 8))])
    """
    result = run(pytester, text, "--probe-seed=3")
    commands = re.findall(r"to reproduce: pytest (.*)", result.stdout.str())
    assert len(commands) == 2
    for command in commands:
        pytester.runpytest(*shlex.split(command)).assert_outcomes(failed=1)


def test_an_exception_of_the_function_is_shown_where_it_was_raised(pytester: pytest.Pytester) -> None:
    text = """
    def broken(x):
        raise KeyError("block size")

    def test_broken(probe):
        probe.check(broken, reference=gelu, inputs=[probe.tensor((4,))], backward=True)
    """
    result = run(pytester, text, "--probe-device=cpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>       raise KeyError("block size")',
            "E       CheckFailed: broken.0.forward on cpu: error",
            "E       cpu raised KeyError: *",
        ]
    )
    result.stdout.no_fnmatch_line("*torch_calls.py*")
    result.stdout.no_fnmatch_line("*broken.0.backward*")


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("my_gelu, reference=lambda x: x + {}", "*the reference raised TypeError: *"),
        (
            "my_gelu, reference=lambda x: torch.from_numpy(x.numpy().astype('f'))",
            "*gave output.0 as float32 where its *",
        ),
        ("print, reference=lambda x: None", "*the reference returns nothing and changes no argument: *"),
        ("lambda x: my_gelu(x).detach(), reference=gelu, backward=True", "*no output of the device can be diff*"),
        ("lambda x: my_gelu(x)[:2], reference=gelu", "*shape [[]2, 4[]], the reference has *"),
        ("lambda x: my_gelu(x.add_(1)), reference=lambda x: gelu(x + 1)", "*the device changed this argument; *"),
    ],
)
def test_a_check_of_outputs_that_cannot_be_compared_fails(pytester: pytest.Pytester, check: str, reason: str) -> None:
    text = f"""
    def test_gelu(probe):
        probe.check({check}, inputs=[probe.tensor((4, 4))])
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([reason])


def test_no_kernel_on_the_device_skips(pytester: pytest.Pytester) -> None:
    text = """
    def no_kernel(x):
        raise NotImplementedError("no kernel for this")

    def test_gelu(probe):
        probe.check(no_kernel, reference=gelu, inputs=[probe.tensor((4, 4))])
    """
    result = run(pytester, text, "-rs", "--probe-out=out")
    result.assert_outcomes(skipped=1)
    assert [(each["verdict"], each["kind"]) for each in results(pytester.path)] == [
        ("skip", "unsupported by the device")
    ]


def test_checks_are_in_results_and_junit_properties(pytester: pytest.Pytester) -> None:
    text = """
    def test_gelu(probe):
        x = probe.tensor((64, 32), "bfloat16")
        probe.check(my_gelu, reference=gelu, inputs=[x], backward=True, api="Functional.gelu")
        probe.check(bad_gelu, reference=gelu, inputs=[x])
    """
    run(pytester, text, "--probe-out=out", "--junitxml=junit.xml", "--probe-save=failing")
    found = results(pytester.path)
    assert [(each["id"], each["api"], each["direction"], each["verdict"]) for each in found] == [
        ("test_mine.py::test_gelu::my_gelu.0.forward", "Functional.gelu", "forward", "pass"),
        ("test_mine.py::test_gelu::my_gelu.0.backward", "Functional.gelu", "backward", "pass"),
        ("test_mine.py::test_gelu::bad_gelu.1.forward", "bad_gelu", "forward", "error"),
    ]
    assert {each["dtype"] for each in found} == {"bfloat16"}
    xml = ElementTree.parse(pytester.path / "junit.xml")
    properties = {each.get("name"): each.get("value") for each in xml.iter("property")}
    assert (properties["probe.verdict"], properties["probe.api"]) == ("error", "bad_gelu")
    assert (pytester.path / "out/saved/test_mine.py::test_gelu/bad_gelu.1.forward.pt").is_file()
    run_file = json.loads((pytester.path / "out/run.json").read_text())
    assert run_file["verdicts"] == {"pass": 2, "error": 1}
    assert run_file["devices"][0]["framework"] == "torch"


WARNING = """
    from msgspec.structs import replace

    def pytest_probe_verdict(case, verdict):
        return replace(verdict, verdict="warning", reason="by decree")
"""


@pytest.mark.parametrize("args", [[], ["-n1"]])
def test_a_warning_has_its_letter_and_fails_if_strict(pytester: pytest.Pytester, args: list[str]) -> None:
    pytester.makeconftest(WARNING)
    text = """
    def test_before(): pass

    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((4, 4))])
    """
    result = run(pytester, text, *args)
    result.stdout.fnmatch_lines(["1 case, 1 warning", "*1 passed, 1 warned*"])
    result.stdout.no_fnmatch_line("*did not run*")
    run(pytester, text, "--probe-strict", *args).assert_outcomes(failed=1, passed=1)


def test_the_standard_and_the_class_of_judge(pytester: pytest.Pytester) -> None:
    text = """
    def my_floor(x):
        return torch.floor(x + 0.5)

    def test_noise(probe):
        probe.check(my_floor, reference=torch.floor, inputs=[probe.tensor((64,))])

    def test_discrete(probe):
        probe.check(torch.floor, reference=torch.floor, inputs=[probe.tensor((64,))], api="Torch.floor")

    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((64,))])
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=1, passed=2)
    result = run(pytester, text, "--probe-standard=exact", "--probe-out=out")
    result.assert_outcomes(failed=2, passed=1)
    assert {output["standard"] for each in results(pytester.path) for output in each["outputs"]} == {"exact"}


def test_a_reference_of_torchs_own_has_its_class(pytester: pytest.Pytester) -> None:
    """A no-op errs by less than a roundoff of nextafter, as noise sees it."""
    text = """
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
    """
    result = run(pytester, text, "-rA")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines_random(["FAILED *::test_no_op*", "FAILED *::test_replaced*"])


def test_tensors_depend_on_the_test_the_order_and_the_seed_alone(pytester: pytest.Pytester) -> None:
    text = """
    import pathlib

    @pytest.mark.parametrize("n", [1, 2])
    def test_tensors(probe, n):
        tensors = [probe.tensor((3,)), probe.tensor((3,)), probe.tensor((3,), "bfloat16")]
        with pathlib.Path("drawn").open("a") as file:
            print(*(round(each.float()[0].item(), 4) for each in tensors), file=file)
    """
    for args in ([], ["-k", "2"], ["--probe-seed=1"]):
        run(pytester, text, *args).assert_outcomes(passed=1 if args[:1] == ["-k"] else 2)
    first, second, alone, other, _ = (pytester.path / "drawn").read_text().splitlines()
    assert alone == second
    assert len({*first.split(), *second.split(), *other.split()}) == 9


def test_the_fixture_draws_tensors_in_the_asked_range(pytester: pytest.Pytester) -> None:
    text = """
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
    """
    result = run(pytester, text, "--probe-device=cpu")
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(
        ["*probe.tensor: dtype: 'float31' cannot be used; give one of float64, *did you mean float*"]
    )
    result.stdout.fnmatch_lines(["*probe.tensor: low, high: (1, None) cannot be used; give both, *"])
    result.stdout.no_fnmatch_line("*checks.py*")


def test_layouts_reach_the_function(pytester: pytest.Pytester) -> None:
    text = """
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
    """
    run(pytester, text).assert_outcomes(passed=4)


def test_nested_keyword_and_changed_arguments(pytester: pytest.Pytester) -> None:
    text = """
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
    """
    run(pytester, text).assert_outcomes(passed=1)


def test_a_marked_test_runs_once_a_record(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("data/dump.json")
    text = """
    @pytest.mark.probe(dump="data/dump.json", api="Functional.*", dtype=["recorded", "float16"])
    def test_mine(probe_case):
        function = getattr(torch.nn.functional, probe_case.record.api)
        [verdict] = probe_case.check(function(*probe_case.args, **probe_case.kwargs))
        assert verdict.verdict == "pass"
    """
    result = run(pytester, text, "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::test_mine[[]Functional.relu.0[]] PASSED*",
            "test_mine.py::test_mine[[]Functional.relu.0-float16[]] PASSED*",
            "test_mine.py::test_mine[[]Functional.linear.0[]] PASSED*",
            "test_mine.py::test_mine[[]Functional.linear.0-float16[]] PASSED*",
            "4 cases, 4 pass",
        ]
    )
    result = run(pytester, text, "-m", "probe(api='linear')", "-n1")
    result.assert_outcomes(passed=2)


def test_gradients_of_a_marked_test(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    text = """
    @pytest.mark.parametrize("wrong", [False, True])
    @pytest.mark.probe(dump="dump.json", api=["Functional.*", "torch.argmax"], direction="both")
    def test_mine(probe_case, wrong):
        owner = torch if probe_case.record.namespace == "Torch" else torch.nn.functional
        out = getattr(owner, probe_case.record.api)(*probe_case.args)
        if wrong and out.requires_grad:
            out.register_hook(lambda gradient: gradient * 1.01)
        probe_case.check(out)
    """
    result = run(pytester, text, "--probe-out=out")
    result.assert_outcomes(passed=4, failed=2)
    found = [(each["api"], each["direction"], each["verdict"]) for each in results(pytester.path)]
    assert sorted(found) == [
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


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("probe_case.check(probe_case.args[0].relu_())", "passed"),
        ("probe_case.check(probe_case.args[0].clone().relu_())", "failed"),
        ("probe_case.check(probe_case.args[0].mul_(2).relu_())", "failed"),
    ],
)
def test_a_check_of_an_in_place_record_must_give_its_result(
    pytester: pytest.Pytester, make_dump: DumpMaker, body: str, outcome: str
) -> None:
    make_dump(data={"Tensor.relu_.0.forward": entries()["Functional.relu.0.forward"]})
    text = f"""
    @pytest.mark.probe(dump="dump.json")
    def test_mine(probe_case):
        {body}
    """
    assert run(pytester, text).parseoutcomes() == {outcome: 1}


def test_a_detached_output_of_a_marked_test_fails(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    text = """
    @pytest.mark.probe(dump="dump.json", api="relu", direction="backward")
    def test_mine(probe_case):
        probe_case.check(probe_case.args[0].detach().relu())
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*no output of the device can be differentiated*"])


def test_a_record_that_cannot_run_is_a_skip(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Torch.load.0.forward": entries()["Torch.load.0.forward"]})
    text = """
    @pytest.mark.probe(dump="dump.json")
    def test_mine(probe_case):
        raise RuntimeError("not reached")
    """
    result = run(pytester, text, "-rs", "--probe-out=out")
    result.assert_outcomes(skipped=1)
    assert [each["kind"] for each in results(pytester.path)] == ["outside the allow-list"]
    result.stdout.fnmatch_lines(["SKIPPED*dump.json: Torch.load.0.forward: Torch.load: torch.load is not *"])


def test_two_dumps_have_their_label_in_ids(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    for rank in ("rank0", "rank1"):
        make_dump(f"dumps/{rank}/dump.json", {"Torch.neg.0.forward": {**entries()["Functional.relu.0.forward"]}})
    text = """
    @pytest.mark.probe(dump="dumps")
    def test_mine(probe_case):
        probe_case.check(-probe_case.args[0])
    """
    result = run(pytester, text, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_mine[[]rank0/dump.json-Torch.neg.0[]] PASSED*"])


def test_what_is_wrong_with_a_check_is_shown_in_the_test(pytester: pytest.Pytester) -> None:
    text = """
    @pytest.mark.parametrize("number", range(4))
    def test_mine(probe, number):
        if number == 0:
            probe.check(gelu, reference=gelu, inputs=[torch.ones(2)], api="Typo.name")
        if number == 1:
            probe.tensor(like={"dtype": "torch.float99", "shape": [8]})
        if number == 2:
            probe.tensor((3,), "float99")
        probe.check_quantizer(gelu, torch.ones(2, 32), recipe="typo")
    """
    result = run(pytester, text)
    result.assert_outcomes(failed=4)
    shown = ["SettingsError: api: 'Typo.name' *", "RecordError: *", "SettingsError: probe.tensor: *", "BrokenCall: *"]
    result.stdout.fnmatch_lines([f"E  *errors.{words}" for words in shown])
    result.stdout.no_fnmatch_line("*pytest_probe/*:[0-9]*")
    run(pytester, text, "--full-trace").stdout.fnmatch_lines(["*pytest_probe/*:[0-9]*"])


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("dump='none.json'", "*pytest.mark.probe: dump: 'none.json' cannot be used; there is no such file*"),
        ("dump='dump.json', api='gelu'", "*pytest.mark.probe(dump='dump.json', api='gelu'): no record matches*"),
        ("dump='dump.json', direction='sideways'", "*direction: 'sideways' cannot be used; give one of both, *"),
        ("dump='dump.json', dtype='float31'", "*dtype: 'float31' cannot be used; give one of recorded, *"),
        (
            "dump='dump.json', apis='gelu'",
            "*pytest.mark.probe: 'apis' cannot be used; give one of dump, api, *did you mean api*",
        ),
        ("api='gelu'", "*give dump=PATH*"),
        ("dump='test_mine.py'", "*test_mine.py*"),
        ("dump='cut.json'", "*cut.json*"),
    ],
)
def test_a_mark_that_cannot_be_used(pytester: pytest.Pytester, make_dump: DumpMaker, mark: str, message: str) -> None:
    path = make_dump()
    (pytester.path / "cut.json").write_text(path.read_text()[:-100])
    text = f"""
    @pytest.mark.probe({mark})
    def test_mine(probe_case): pass
    """
    result = run(pytester, text)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_fixture_without_its_mark_and_a_mark_without_its_fixture(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    make_dump()
    run(pytester, "def test_mine(probe_case): pass").stdout.fnmatch_lines(["*the test needs @pytest.mark.probe(dump=*"])
    text = """
    @pytest.mark.probe(dump="dump.json")
    def test_mine(): pass
    """
    run(pytester, text).stdout.fnmatch_lines(["*test_mine is marked probe but takes no probe_case*"])


def test_recorded_leaves_no_device_for_functions(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_gelu(probe): pass", "--probe-device=recorded", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*--probe-device=recorded leaves no device for functions of your own"])


def test_a_wrong_ini_value_is_said_without_a_traceback(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nprobe_seed = x\n")
    text = "def test_gelu(probe): probe.tensor((3,))"
    result = run(pytester, text)
    result.stdout.fnmatch_lines(["probe_seed*cannot be used; give a whole number"])
    result.stdout.no_fnmatch_line("*fixtures.py*")
    pytester.makeini("[pytest]\nprobe_seed = 1\nprobe_device = pdp11")
    for args in ([], ["-n1"]):
        run(pytester, text, *args).stderr.fnmatch_lines(
            ["ERROR: probe_device in tox.ini: 'pdp11' cannot be used; torch says: *"]
        )


def test_items_of_a_dump_run_beside(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump(data={"Torch.neg.0.forward": entries()["Functional.relu.0.forward"]})
    text = """
    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((4, 4))])
    """
    result = run(pytester, text, "test_mine.py", "--probe-dump=dump.json", "--probe-out=out")
    result.assert_outcomes(passed=2)
    assert [each["id"] for each in results(pytester.path)] == [
        "test_mine.py::test_gelu::my_gelu.0.forward",
        "dump.json::Torch.neg.0.forward",
    ]


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
    text = """
    def test_gelu(probe):
        probe.check(my_gelu, reference=gelu, inputs=[probe.tensor((4, 4))])
    """
    run(pytester, text, "--probe-device=fake:0").assert_outcomes(failed=1)
    run(pytester, text, "--probe-device=cpu").assert_outcomes(passed=1)
