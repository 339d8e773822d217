"""msprobe's own configuration files: what each release ships, and the examples of its guides.

tests/data/msprobe-configs holds them, those that are alike once: of the 22 releases on PyPI the config.json, of all
their guides, and of those of 26 on GitHub, the blocks of JSON that name a task or a dump_path. The settings of its ATB
tool, which bear the same name, are left out.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.capture.config import CaptureConfig, read_config
from pytest_probe.errors import SettingsError
from pytest_probe.standards.tools.table import read_standards_file
from tests.support.dumps import DATA

# What no capture of ours does, and the words that name it.
REFUSED = {
    "free_benchmark": "msprobe's free benchmarking",
    "grad_probe": "msprobe's gradient monitor",
    "run_ut": "msprobe's accuracy checker",
    "acc_check": "msprobe's accuracy checker",
    "nan_check": "msprobe's search for the first NaN",
    "exception_dump": "msprobe's dump of AI Core exceptions",
    "L2": "msprobe's dump of Ascend kernels",
    "debug": "msprobe's debugger.save",
}
OF_1_0 = ["acl_config", "enable_dataloader", "tensor.backward_input", "tensor.file_format", "overflow_check.check_mode"]


def kept(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "msprobe-configs" / name).read_text(encoding="utf-8").splitlines()]


BUNDLED = {release: each["content"] for each in kept("bundled.jsonl") for release in each["releases"]}
GUIDES = kept("guides.jsonl")


def written(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("release", BUNDLED)
def test_the_configuration_that_a_release_brings_is_read(
    release: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, BUNDLED[release])
    seeded = "seed" in BUNDLED[release]
    wanted = CaptureConfig("./dump_path", seed=1234 if seeded else None, deterministic=False if seeded else None)
    assert read_config(path) == wanted
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith(f"pytest-probe: {path}: these keys have no effect here: ")
    if release in ("1.0.1", "1.0.4"):
        assert [key for key in OF_1_0 if key not in told] == []
    read_config(path)
    assert len(caplog.records) == 1


def test_the_configurations_of_22_releases_are_tested() -> None:
    assert len(BUNDLED) == 22
    assert {"1.0.1", "1.0.4", "1.2.2", "8.3.3", "26.2.0"} < BUNDLED.keys()
    assert len(GUIDES) > 80


@pytest.mark.parametrize("example", GUIDES, ids=[f"{at}-{each['guide']}" for at, each in enumerate(GUIDES)])
def test_an_example_of_a_guide_is_read_or_refused_by_name(example: dict[str, Any], tmp_path: Path) -> None:
    content = example["content"]
    path = written(tmp_path, content)
    named = next((content[key] for key in ("task", "level") if content.get(key) in REFUSED), None)
    online = '"online_run_ut": true' in json.dumps(content)
    # msprobe sends plain text where no certificates are named.
    plain = online and not any(content["tensor"].get(key) for key in ("nfs_path", "tls_path"))
    words = REFUSED[named] if named else "readable on its way" if plain else ""
    if words:
        with pytest.raises(SettingsError, match=words) as refused:
            read_config(path)
        assert f"{path}: " in str(refused.value)
        return
    config = read_config(path)
    assert (config.task, config.level) == (content["task"], content["level"])
    assert config.dump_path == content["dump_path"]
    assert (config.online is not None) == online


@pytest.mark.parametrize("section", ["run_ut", "acc_check"])
def test_the_lists_of_its_checker_are_read(section: str, tmp_path: Path) -> None:
    """A configuration of its checker is no capture's, but --probe-standards-file takes it."""
    found = [each for each in [*BUNDLED.values(), *(example["content"] for example in GUIDES)] if section in each]
    assert found
    for content in found:
        rules = read_standards_file(written(tmp_path, content))
        assert (list(rules.white_list), list(rules.black_list)) == ([], [])


def test_what_has_no_effect_is_said_of_arguments_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read_config(None, dump_path="of arguments", precision="high", is_online=False)
    assert caplog.messages == ["pytest-probe: PrecisionDebugger: these keys have no effect here: precision, is_online"]
