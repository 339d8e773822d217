from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from pytest_probe import PrecisionDebugger, capture
from pytest_probe.capture.config import ARGUMENTS, AllOptions, Options, read_config
from pytest_probe.capture.scope import Scope
from pytest_probe.errors import SettingsError
from pytest_probe.features.self_check.training import Config


def written(folder: Path, **content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_the_section_of_the_task_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        task="tensor",
        dump_path="d",
        tensor={"list": ["relu"], "data_mode": ["forward"]},
        statistics={"list": ["conv"], "summary_mode": "md5"},
        run_ut={"black_list": ["softmax"]},
    )
    config = read_config(path)
    assert (config.names, config.summary, config.black) == (("relu",), "statistics", ("softmax",))
    assert config.modes == {"forward", "input", "output"}


def test_a_section_of_the_checkers_that_is_empty_hides_no_other(tmp_path: Path) -> None:
    path = written(tmp_path, dump_path="d", run_ut={"black_list": []}, acc_check={"black_list": ["relu"]})
    assert read_config(path).black == ("relu",)
    assert read_config(path, black_list=["gelu"]).black == ("gelu",)


def test_all_is_said_by_an_empty_list_too(tmp_path: Path) -> None:
    for chosen in ([], ["all"]):
        config = read_config(None, dump_path=tmp_path, data_mode=chosen, kinds=chosen)
        assert (len(config.modes), len(config.kinds), config.dump_path) == (4, 4, str(tmp_path))


def test_a_wrong_argument_is_one_of_all_keys() -> None:
    with pytest.raises(SettingsError, match=r"PrecisionDebugger: unknown key 'scop'; did you mean 'scope'\? .*level, "):
        read_config(None, dump_path="d", scop=[])
    with pytest.raises(SettingsError, match=r"PrecisionDebugger: step: '4-' .*numbers, 0 or more"):
        read_config(None, dump_path="d", step=["4-"])
    assert read_config(None, dump_path="d", async_dump=True, level=None) == read_config(None, dump_path="d")


def test_a_range_is_no_set_of_its_numbers() -> None:
    config = read_config(None, dump_path="d", step=["0-999999999", 2**62], rank=["3-999999999"])
    assert config.steps == (range(0, 10**9), range(2**62, 2**62 + 1))
    scope = Scope(config)
    assert [scope.wants_step(step) for step in (0, 999_999_999, 10**9, 2**62)] == [True, True, False, True]
    assert [scope.wants_rank(rank) for rank in (None, 2, 3)] == [False, False, True]


def test_arguments_count_more_than_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, task="statistics", dump_path="d", step=[], statistics={"scope": []})
    config = read_config(path, task="tensor", step=[1, "4-6"], scope=["Torch.a.0.forward", "Torch.b.0.forward"])
    assert (config.task, config.steps, config.scope[0]) == ("tensor", (range(1, 2), range(4, 7)), "Torch.a.0.forward")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"tasks": "tensor"}, ["unknown key 'tasks'; did you mean 'task'? Known keys: task, "]),
        ({"task": "tensors"}, ["tensors", "statistics, tensor, structure, overflow_check"]),
        ({"scope": []}, ["unknown key 'scope'; known keys: task, "]),
        ({"level": "L3"}, ["level", "L3", "L0, L1, mix"]),
        ({"level": "L2"}, ["level: 'L2'", "msprobe's dump of Ascend kernels", "level L1"]),
        ({"jit": True}, ["jit: True", "kernels of compiled functions", "run the program without jit"]),
        ({"task": "grad_probe"}, ["task: 'grad_probe'", "msprobe's gradient monitor"]),
        ({"task": "free_benchmark"}, ["task: 'free_benchmark'", "msprobe's free benchmarking", "--probe-dump"]),
        ({"tensor": {"online_run_ut": True}}, ["online_run_ut: True", "nfs_path, or host and port"]),
        ({"seed": -1}, ["seed: -1", "0 to 2**32 - 1"]),
        ({"is_deterministic": "no"}, ["is_deterministic: 'no'", "true or false"]),
        ({"step": ["6-4"]}, ["step", "6-4"]),
        ({"step": 3}, ["step", "list"]),
        ({"statistics": {"scope": ["one"]}}, ["scope", "first and the last"]),
        ({"statistics": {"data_modes": []}}, ["statistics: unknown key 'data_modes'; did you mean 'data_mode'?"]),
        ({"statistics": {"data_mode": "forward"}}, ["statistics: data_mode: 'forward'", "a list of forward, "]),
        ({"statistics": ["all"]}, ["statistics", "an object"]),
        ({"namespaces": {"Mine": 1}}, ["namespaces: {'Mine': 1}", "modules by prefix"]),
        ({"task": "overflow_check", "overflow_check": {"overflow_nums": 0}}, ["overflow_nums", "-1"]),
        ({"task": "overflow_check", "level": "L0"}, ["level", "L1"]),
    ],
)
def test_what_cannot_be_used_is_named(content: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        read_config(written(tmp_path, dump_path="d", **content))
    for word in [*words, "config.json"]:
        assert word in str(error.value) or (word == "config.json" and "PrecisionDebugger" in str(error.value))


@pytest.mark.parametrize("text", ["{", "[]", '"a"', "[" * 100_000])
def test_a_file_that_is_no_configuration_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="JSON object"):
        read_config(path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        read_config(tmp_path / "none.json")
    with pytest.raises(SettingsError, match="dump_path"):
        read_config(None)


def test_online() -> None:
    config = read_config(None, online="file:///shared/run%201", task="tensor", online_policy="drop", online_buffer=5)
    assert str(config.online) == "file:///shared/run%201"
    assert (config.policy, config.buffer) == ("drop", 5)
    assert str(read_config(None, online="[::1]:4000", task="tensor").online) == "[::1]:4000"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"online": "nowhere"}, "give file:///FOLDER, or HOST:PORT"),
        ({"online": "file://other/folder"}, "give file:///FOLDER, or HOST:PORT"),
        ({"online": "host:70000"}, "give file:///FOLDER, or HOST:PORT"),
        ({"online": "host:1", "task": "statistics"}, "online sends whole calls; give task tensor"),
        ({"online": "host:1", "level": "mix"}, "online sends whole calls; give level L1"),
        ({"online": "host:1", "online_policy": "wait"}, "online_policy"),
        ({"online": "host:1", "online_buffer": 0}, "give a number of bytes"),
    ],
)
def test_what_online_does_not_take(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_config(None, **{"task": "tensor", **given})


def test_certificates_are_not_forgotten(tmp_path: Path) -> None:
    assert read_config(None, task="tensor", online="host:1", tls_path="keys").tls == "keys"
    (tmp_path / "config.json").write_text(json.dumps({"task": "tensor", "tensor": {"tls_path": "keys"}}))
    assert read_config(tmp_path / "config.json", online="host:1").tls == "keys"
    with pytest.raises(SettingsError, match=r"readable on its way.*tls_path"):
        read_config(None, task="tensor", online="host:1")


@pytest.mark.parametrize("section", [False, True])
def test_the_keys_of_msprobes_online_check(tmp_path: Path, section: bool) -> None:
    keys = {"online_run_ut": True, "nfs_path": "/shared", "host": "", "port": -1, "tls_path": "/certificates"}
    (tmp_path / "config.json").write_text(json.dumps({"task": "tensor", **({"tensor": keys} if section else keys)}))
    config = read_config(tmp_path / "config.json")
    assert str(config.online) == "file:///shared"
    assert config.tls == "/certificates"
    keys |= {"nfs_path": "", "host": "10.0.0.1", "port": 4000}
    (tmp_path / "config.json").write_text(json.dumps({"task": "tensor", **keys}))
    assert str(read_config(tmp_path / "config.json").online) == "10.0.0.1:4000"
    (tmp_path / "config.json").write_text(json.dumps({"task": "tensor", "online_run_ut": True, "dump_path": "x"}))
    with pytest.raises(SettingsError, match="give the checking host as well: nfs_path, or host and port"):
        read_config(tmp_path / "config.json")


def scope(**given: object) -> Scope:
    return Scope(read_config(None, dump_path="d", **given))


def test_an_interval_holds_both_its_ends() -> None:
    asked = scope(scope=["Torch.b.0.forward", "Torch.d.0.backward"])
    calls = ["Torch.a.0", "Torch.b.0", "Torch.c.0", "Torch.d.0", "Torch.e.0"]
    assert [call for call in calls if asked.wants(call)] == calls[1:4]


def test_an_interval_is_closed_when_a_step_begins() -> None:
    asked = scope(scope=["Torch.b.0.forward", "Torch.never.0.forward"])
    assert asked.wants("Torch.b.0")
    asked.again()
    assert not asked.wants("Torch.c.0")


def test_names_are_parts_of_entries() -> None:
    asked = scope(list=["relu", "linear.0.backward"])
    wanted = ["Functional.relu.3", "Functional.linear.0"]
    assert [call for call in [*wanted, "Functional.linear.1", "Torch.add.0"] if asked.wants(call)] == wanted


def test_lists_of_apis_know_globs_and_prefixes() -> None:
    asked = scope(white_list=["Functional.*", "add"], black_list=["softmax*"])
    assert asked.wants_api("Functional.linear")
    assert asked.wants_api("Torch.add")
    assert not asked.wants_api("Functional.softmax")
    assert not asked.wants_api("Torch.mul")


# Parameters of PrecisionDebugger.
OWN = {"task", "dump_path", "level", "step"}
ONLINE = {"online_run_ut", "nfs_path", "host", "port"}


def test_each_key_has_a_type() -> None:
    keys = {each.encode_name for each in (*fields(ARGUMENTS), *fields(Config))}
    assert set(Options.__annotations__) == (keys - OWN) | ONLINE
    assert set(AllOptions.__annotations__) >= OWN - {"dump_path"}


def test_a_name_that_is_none() -> None:
    with pytest.raises(ImportError, match="PrecisonDebugger"):
        from pytest_probe import PrecisonDebugger  # type: ignore[attr-defined]  # noqa: F401


def test_a_value_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="online"):
        PrecisionDebugger(online=3)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="lists"):
        PrecisionDebugger(dump_path=tmp_path, lists=["relu"])  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="summary_mode"), capture(tmp_path, summary_mode="sha"):  # type: ignore[arg-type]
        pass
