"""Bad input: one clear message each, and everything that is good still runs. Nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytest_probe.frameworks
from tests.acceptance.conftest import DumpMaker, entries, forward, tensor, written
from tests.support.other_plugins import Ran
from tests.support.running import collected, ran
from tests.support.tensor_files import safetensors, with_header

KNOWN = "known are dumps of msprobe 1.0 to 26.2 (dump.json, with entries under the key 'data'), of the "
KNOWN += "api_accuracy_checker of 2023 (forward_info_0.json), of ptdbg (a .pkl that is text) and of PaddleAPEX "
KNOWN += "(forward_rank0.json), text files with a call of Paddle's in each line, and files of named tensors "
KNOWN += "(.safetensors, and a .pt that holds a dictionary)"
HEADER = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null'
ELSEWHERE = "expected the stored tensor there, or in a folder that --probe-data-dir=DIR names"
GENERATED = "--probe-inputs=generated makes values from the statistics instead"


GOOD = {name: entry for name, entry in entries().items() if not name.startswith(("Module", "Torch.load"))}
BACKWARD = "Functional.relu.0.backward"

# Files that are no dumps; tests/records/test_finding.py has more of them.
FILES = {
    "empty": (b"", "is empty; repeat the capture"),
    "binary": (bytes(range(256)) * 300, f"is not a dump: it is binary; {KNOWN}"),
    "header": (
        (HEADER + "}").encode(),
        "has the header of a dump but no entries: the key 'data' is missing or is not an object; repeat the capture",
    ),
    "cut": (
        (HEADER + ', "data": {"Functional.relu.0.forward": {"input_args": [').encode(),
        "is damaged or cut off at byte 139 (line 1), in entry Functional.relu.0.forward; no entry could be read; "
        "copy the file again, or repeat the capture",
    ),
}


TRUNCATED = json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": entries()})
CUT = TRUNCATED.index("[", TRUNCATED.index("Torch.argmax.0.forward")) + 1
X, HUGE = tensor(2, 3), tensor(10**6, 10**6)
# Records with one thing wrong, and where; tests/records/msprobe/test_entries.py has more of them.
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"relu.0.forward": None}, "relu.0.forward: found null, expected an object"),
    ({"relu.0.forward": {**forward(X, output=X), "input_kwargs": [1]}},
     "relu.0.forward: input_kwargs: found a list of 1, expected an object of arguments"),
    ({"relu.0.forward": forward({**X, "shape": [2, -3]}, output=X)},
     "relu.0.forward: input_args.0.shape.1: found -3, expected an integer from 0 on, below 2**63"),
    ({"relu.0.forward": forward({**X, "data_name": "../x.pt"}, output=X)},
     'relu.0.forward: input_args.0.data_name: found "../x.pt", expected the bare name of a file, without a folder'),
    ({"relu.0.forward": forward(X, output=X), "relu.0.backward": {"input": [7]}},
     "relu.0.backward: input.0: found 7, expected an object, a list or null"),
]  # fmt: skip
# A value that is refused before it is decoded, and what the message calls it.
BOUNDLESS = {
    "digits": ("9" * 10_000, "a value that cannot be decoded"),
    "long text": ('"' + "x" * 100_000_000 + '"', "an entry of 100,000,"),
}
STACKS = {"no stack": None, "cut stack": b"{", "binary stack": b"\0\1\2"}

FORBIDDEN = {
    "Torch.load": "torch.load is not among what torch lists as public and overridable",
    "Torch.os.system": "torch.os.system is not among what torch lists as public and overridable",
    "os.system": "os is not one of Functional, Tensor, Torch, VF; allow it with probe_namespaces (os=python.module, or "
    "os=torch.ops.os for operators)",
    "this.s": "this is not one of Functional, Tensor, Torch, VF; allow it with probe_namespaces (this=python.module, "
    "or this=torch.ops.this for operators)",
    "Distributed.all_reduce": "communication between ranks cannot be replayed alone",
}


class Runs:
    """Its pickle makes a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


TENSOR = saved(torch.ones(2, 3))
NAMES = "it names {}, which a stored tensor does not need"
READ = "which cannot be read ({}), expected a stored tensor"

# Content of a tensor file, and the message about it: FILE stands for its path, FOLDER for the folder.
STORED: dict[str, tuple[bytes | None, str]] = {
    "missing.pt": (None, f"no file 'missing.pt' in FOLDER, {ELSEWHERE}"),
    "truncated.pt": (
        TENSOR[: len(TENSOR) // 2],
        "FILE, " + READ.format("it is no file of a tensor (File is not a zip file)"),
    ),
    "pickle.pt": (pickle.dumps(Runs()), f"FILE, {READ.format(NAMES.format('posix.mkdir'))}"),
    "torch_pickle.pt": (saved(Runs()), f"FILE, {READ.format(NAMES.format('posix.mkdir'))}"),
    "shape.pt": (saved(torch.ones(3, 2)), "shape (3, 2) in FILE, expected shape (2, 3) as recorded"),
    "dtype.pt": (saved(torch.ones(2, 3).double()), "dtype float64 in FILE, expected float32 as recorded"),
    "sparse.pt": (
        saved(torch.ones(2, 3).to_sparse()),
        f"FILE, {READ.format(NAMES.format('torch._utils._rebuild_sparse_tensor'))}",
    ),
    "objects.npy": (npy(np.array([Runs()], object)), f"FILE, {READ.format('it holds Python objects')}"),
}


def lost() -> dict[str, Any]:
    x = tensor(2, 3)
    return {**forward(x, {}, output=x), "input_kwargs": {"other": [{}]}}


def forbidden() -> dict[str, Any]:
    word, size = {"type": "str", "value": "made.bin"}, {"type": "int", "value": 4}
    record = forward(word, {"type": "bool", "value": True}, size, output=tensor(4))
    system = forward({"type": "str", "value": "touch made.bin"}, output=None)
    return {f"{api}.0.forward": system if "system" in api else record for api in FORBIDDEN}


# The dumps of the one run, each in a folder of its name.
DUMPS: dict[str, dict[str, Any]] = {
    "good": {"data": GOOD},
    "odd header": {"data": GOOD, "task": "x", "level": 3, "framework": None, "dump_data_dir": 7, "colour": "red"},
    "broken": {
        "data": {
            **{
                f"Functional.{name.replace('.0.', f'.{number}.')}": entry
                for number, (entries_, _) in enumerate(BROKEN)
                for name, entry in entries_.items()
            },
            **{name.replace(".0.", ".900."): entry for name, entry in GOOD.items()},
        }
    },
    "huge": {"data": {"Functional.gelu.0.forward": forward(HUGE, output=HUGE), **GOOD}},
    "lost": {"data": {"Torch.add.0.forward": lost(), **GOOD}},
    "forbidden": {"data": {**forbidden(), **GOOD}},
    "modules": {"data": {name: entry for name, entry in entries().items() if name.startswith("Module")}, "level": "L0"},
    "framework": {"framework": "jax"},
    "no gradients": {"data": {**GOOD, BACKWARD: {"output": GOOD[BACKWARD]["output"]}}},
    "large file": {
        "data": {
            "Functional.gelu.0.forward": forward({**tensor(2, 3), "data_name": "x.pt"}, output=tensor(2, 3)), **GOOD
        },
        "task": "tensor",
    },
    "stored": {
        "data": {
            f"Functional.relu.{number}.forward": forward({**tensor(2, 3), "data_name": name}, output=tensor(2, 3))
            for number, name in enumerate(["good.pt", *STORED])
        },
        "task": "tensor",
    },
    **{
        name: {
            "data": {
                "Torch.add.0.forward": forward(
                    tensor(2, 3), {"type": "int", "value": "VALUE"}, output=tensor(2, 3)
                ),
                **GOOD,
            }
        }
        for name in BOUNDLESS
    },
    **{name: {"data": GOOD} for name in (*STACKS, "twice", "byte order", "read only")},
}  # fmt: skip


def edited(file: Path, old: str, new: str, encoding: str = "utf-8") -> None:
    file.write_text(file.read_text().replace(old, new), encoding=encoding)


def write(folder: Path) -> list[str]:
    """Everything that is bad, and what is good among it; what is named by --probe-dump."""
    for name, (content, _) in FILES.items():
        (folder / name).mkdir()
        (folder / name / "dump.json").write_bytes(content)
    for name, header in DUMPS.items():
        written(folder / name / "dump.json", **header)
    (folder / "truncated").mkdir()
    (folder / "truncated/dump.json").write_text(TRUNCATED[:CUT])
    edited(folder / "twice/dump.json", '"data": {', '"data": {"Functional.relu.0.forward": {}, ')
    edited(folder / "byte order/dump.json", "", "", "utf-8-sig")
    for name, (value, _) in BOUNDLESS.items():
        edited(folder / name / "dump.json", '"VALUE"', value)
    for name, stack in STACKS.items():
        (folder / name / "stack.json").unlink()
        if stack is not None:
            (folder / name / "stack.json").write_bytes(stack)
    for name in ("stored", "large file"):
        (folder / name / "dump_tensor_data").mkdir()
    (folder / "stored/dump_tensor_data/good.pt").write_bytes(TENSOR)
    for name, (stored, _) in STORED.items():
        if stored is not None:
            (folder / "stored/dump_tensor_data" / name).write_bytes(stored)
    with (folder / "large file/dump_tensor_data/x.pt").open("wb") as file:
        file.truncate(2_000_000)
    named = ("m.output", "m.input", "n")
    (folder / "named.safetensors").write_bytes(safetensors(**dict.fromkeys(named, np.ones(2, np.float32))))
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    bad = with_header({"a": good, "b": good | {"dtype": "F3"}}, bytes(8))
    (folder / "damaged.safetensors").write_bytes(bad)
    (folder / "read only").chmod(0o555)
    names = (*FILES, *DUMPS, "truncated")
    return [
        *(name if name == "empty" else f"{name}/dump.json" for name in names),
        "named.safetensors",
        "damaged.safetensors",
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("bad")
    return ran(folder, *(f"--probe-dump={path}" for path in write(folder)), "--probe-out=out", "-vv", "-rs")


def found(run: Ran, name: str, verdict: str) -> dict[str, tuple[str, str]]:
    """Kind and reason of every item of a dump with this verdict, by its name."""
    rows = ((*row["id"].rpartition("::")[::2], row) for row in run.rows if row["verdict"] == verdict)
    return {item: (row["kind"], row["reason"]) for file, item, row in rows if file.removesuffix("/dump.json") == name}


def all_good_pass(run: Ran, name: str) -> bool:
    return {*found(run, name, "pass")} >= {*GOOD}


def test_nothing_ends_in_a_traceback(run: Ran) -> None:
    assert run.result.ret == pytest.ExitCode.TESTS_FAILED
    for line in (*run.result.outlines, *run.result.errlines):
        assert not line.startswith(("E   ", "INTERNALERROR", "Traceback", "This fails the run"))
    bad = {*FILES, "truncated", "framework", "damaged.safetensors"}
    failed = {row["id"].rpartition("::")[0].removesuffix("/dump.json") for row in run.rows if row["verdict"] == "error"}
    assert failed == bad


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_dump_is_one_failing_item(run: Ran, name: str) -> None:
    message = f"{run.folder}/{name}/dump.json: {FILES[name][1]}"
    assert found(run, name, "error") == {"(damaged)": ("", message)}
    assert not found(run, name, "pass")
    assert message in run.result.outlines
    assert f"to reproduce: pytest '{name}/dump.json::(damaged)'" in run.result.outlines


TRUNCATED_MESSAGE = (
    f"dump.json: is damaged or cut off at byte {CUT} (line 1), in entry Torch.argmax.0.forward; the last good entry "
    "before is Functional.linear.0.forward; entries kept: 3; copy the file again, or repeat the capture"
)


def test_a_truncated_dump_runs_what_is_before_the_cut(run: Ran) -> None:
    message = f"{run.folder}/truncated/{TRUNCATED_MESSAGE}"
    assert found(run, "truncated", "error") == {"(damaged)": ("", message)}
    assert {*found(run, "truncated", "pass")} == {"Functional.relu.0.forward", "Functional.linear.0.forward"}


def test_a_truncated_dump_with_workers(pytester: pytest.Pytester) -> None:
    (pytester.path / "dump.json").write_text(TRUNCATED[:CUT])
    result = pytester.runpytest("--probe-dump=dump.json", "-n1")
    result.assert_outcomes(passed=2, failed=1)
    assert f"{pytester.path}/{TRUNCATED_MESSAGE}" in result.outlines
    assert len(collected(pytester, "dump.json::(damaged)")) == 1


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        (
            "odd header",
            [
                "3 records (pytorch, x)",
                "framework is null, expected a string; taken as pytorch",
                "unknown task 'x', known are statistics, tensor, structure, overflow_check, acc_check",
                "level is 3, expected a string",
                "unknown top-level key 'colour'",
            ],
        ),
        ("twice", ["entry Functional.relu.0.forward occurs 2 times, the last one counts"]),
    ],
)
def test_what_is_odd_is_noted(run: Ran, name: str, notes: list[str]) -> None:
    assert all_good_pass(run, name)
    run.result.stdout.fnmatch_lines([f"probe: {name}/dump.json: {note}" for note in notes])


def test_every_wrong_field_is_a_skip_of_its_record_that_shows_its_message(run: Ran) -> None:
    messages = [message.replace(".0.", f".{number}.", 1) for number, (_, message) in enumerate(BROKEN)]
    assert found(run, "broken", "skip") == {
        f"Functional.{name.replace('.0.', f'.{number}.')}": (
            "broken record", f"{run.folder}/broken/dump.json: Functional.{messages[number]}"
        )
        for number, (wrong, _) in enumerate(BROKEN)
        for name in wrong
    }  # fmt: skip
    assert len(found(run, "broken", "pass")) == len(GOOD)
    run.result.stdout.fnmatch_lines(["SKIPPED [[]1[]] *:*: input_args.0.shape.1: found -3, * (Functional.relu.2.*)"])


@pytest.mark.parametrize(
    ("name", "item", "kind", "start"),
    [
        (
            "huge",
            "Functional.gelu.0.forward",
            "too large",
            "input_args.0: found float32 of shape [1000000, 1000000];",
        ),
        (
            "lost",
            "Torch.add.0.forward",
            "lost argument",
            "input_args.1, input_kwargs.other.0: found {}, which does not say what the argument was, expected its "
            "value; with the recorded output's dtype in its place: ",
        ),
        *((name, "Torch.add.0.forward", "broken record", f"found {said}") for name, (_, said) in BOUNDLESS.items()),
    ],
)
def test_a_record_that_cannot_run_is_skipped(run: Ran, name: str, item: str, kind: str, start: str) -> None:
    ((skipped, (told, reason)),) = found(run, name, "skip").items()
    assert (skipped, told) == (item, kind)
    assert reason.startswith(f"{run.folder}/{name}/dump.json: {item}: {start}")
    assert len(reason) < 500 + len(str(run.folder)) or name == "lost"
    assert (name == "huge") == (" checking the call takes about 24,000.0 GB, more than the " in reason)
    assert all_good_pass(run, name)


def test_an_api_outside_the_allow_list_is_neither_imported_nor_called(run: Ran) -> None:
    dump = f"{run.folder}/forbidden/dump.json"
    assert found(run, "forbidden", "skip") == {
        f"{api}.0.forward": ("outside the allow-list", f"{dump}: {api}.0.forward: {api}: {message}")
        for api, message in FORBIDDEN.items()
    }
    assert all_good_pass(run, "forbidden")
    # What `import this` prints.
    assert "Zen of Python" not in run.result.stdout.str()
    assert not [*run.folder.rglob("made.bin")]


def test_a_tensor_file_that_cannot_be_used(run: Ran) -> None:
    dump, folder = run.folder / "stored/dump.json", run.folder / "stored/dump_tensor_data"
    expected = {}
    for number, (name, (_, message)) in enumerate(STORED.items(), start=1):
        said = message.replace("FILE", str(folder / name)).replace("FOLDER", str(folder))
        where = f"{dump}: Functional.relu.{number}.forward: input_args.0"
        expected[f"Functional.relu.{number}.forward"] = ("broken record", f"{where}: found {said}; {GENERATED}")
    assert found(run, "stored", "skip") == expected
    assert {*found(run, "stored", "pass")} == {"Functional.relu.0.forward"}
    assert not [*run.folder.rglob("made")]


def test_a_tensor_file_far_too_large(run: Ran) -> None:
    folder = run.folder / "large file"
    path = folder / "dump_tensor_data/x.pt"
    said = f"found a file of 2000000 bytes, {path}, expected at most 1048672 for float32 of shape (2, 3)"
    message = f"{folder}/dump.json: Functional.gelu.0.forward: input_args.0: {said}"
    assert found(run, "large file", "skip") == {"Functional.gelu.0.forward": ("broken record", message)}
    assert all_good_pass(run, "large file")


def test_incoming_gradients_that_no_dump_has_are_generated_and_noted(run: Ran) -> None:
    noted = {row["id"].rpartition("::")[2]: row["notes"] for row in run.rows if row["id"].startswith("no gradients/")}
    assert noted.pop(BACKWARD) == ["incoming gradients are generated: the dump has none"]
    assert {*map(tuple, noted.values())} == {()}


def test_a_dump_of_modules_only_says_what_to_record(run: Ran) -> None:
    said = "it holds no API calls, only 1 Module entry; record with level L1 or mix instead of L0"
    message = f"{run.folder}/modules/dump.json: {said}"
    assert found(run, "modules", "skip") == {"(empty)": ("no API calls in the dump", message)}


def test_a_dump_of_an_unsupported_framework_fails_with_a_reason(run: Ran) -> None:
    said = "it was recorded with jax, whose calls cannot run yet; give a dump of pytorch, mindspore, paddle"
    assert found(run, "framework", "error") == {"(framework)": ("", f"{run.folder}/framework/dump.json: {said}")}


def test_a_missing_framework_fails_and_says_how_to_install_it(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    monkeypatch.setitem(pytest_probe.frameworks.MODULES, "pytorch", "no_such_torch")
    result = pytester.runpytest("--probe-dump=dump.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its calls need no_such_torch, which is not installed: pip install *"])


@pytest.mark.parametrize("name", [*STACKS, "byte order"])
def test_what_does_not_matter_is_left_out(run: Ran, name: str) -> None:
    """A stack that cannot be used, and a byte order mark."""
    assert all_good_pass(run, name)


def test_nothing_is_written_beside_a_dump(run: Ran) -> None:
    assert all_good_pass(run, "read only")
    assert sorted(path.name for path in (run.folder / "read only").iterdir()) == ["dump.json", "stack.json"]


def test_a_dump_given_twice_is_collected_once(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump("given/dump.json", GOOD)
    dumps = ("given/dump.json", "./given/../given/dump.json", "given")
    assert len(collected(pytester, *(f"--probe-dump={dump}" for dump in dumps))) == len(GOOD)


def test_named_tensors_are_one_skip(run: Ran) -> None:
    held = "2 entries of named tensors: compared and not replayed"
    run.result.stdout.fnmatch_lines(
        [f"probe: named.safetensors: 0 records (pytorch, tensor, named tensors); no items: {held}"]
    )
    kind, reason = found(run, "named.safetensors", "skip")["(empty)"]
    assert kind == "no API calls in the dump"
    assert reason.startswith(f"{run.folder}/named.safetensors: it holds no API calls, only {held}; ")


def test_damaged_named_tensors_fail(run: Ran) -> None:
    _, reason = found(run, "damaged.safetensors", "error")["(damaged)"]
    assert reason.startswith(f"{run.folder}/damaged.safetensors: b: the dtype F3, expected one of BOOL, ")
    assert reason.endswith("; tensors kept: 1")
