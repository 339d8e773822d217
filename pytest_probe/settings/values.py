"""One function for each kind of value: reads it as it was written, and checks it."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from pytest_probe import frameworks
from pytest_probe.check.cost import shard_of
from pytest_probe.errors import SettingsError
from pytest_probe.model.device_modes import MODES
from pytest_probe.selection import Selection
from pytest_probe.settings.choices import ACCURACY, ALONE, DIRECTION_CHOICES, DTYPE_CHOICES, MEMORY, TIME, check_name
from pytest_probe.settings.settings import PROFILES, Examples
from pytest_probe.settings.written import Written
from pytest_probe.standards.tools.project_rules import StandardsFile
from pytest_probe.system.files import check_replaceable

if TYPE_CHECKING:
    pass

SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def choice(written: Written, name: str, choices: tuple[str, ...]) -> str:
    return check_name(written.name(name), written.text(name), choices)


def comma_list(written: Written, name: str) -> tuple[str, ...]:
    text = written.text(name)
    values = tuple(part.strip() for part in text.split(",")) if text else ()
    if not all(values):
        raise SettingsError(written.name(name), text, "give names separated by commas, none of them empty")
    return tuple(dict.fromkeys(values))


def data_dir(written: Written) -> Path | None:
    path = next(iter(written.paths("data-dir")), None)
    if path is not None and not path.is_dir():
        raise SettingsError(written.name("data-dir"), str(path), "there is no such folder")
    return path


def modes(written: Written) -> tuple[str, ...]:
    """Device modes to allow, or "auto" or "none" alone."""
    values = tuple(check_name(written.name("allow"), mode, (*MODES, *ALONE)) for mode in comma_list(written, "allow"))
    if len(values) > 1 and any(value in ALONE for value in values):
        raise SettingsError(written.name("allow"), written.text("allow"), "auto and none stand alone")
    return values


def seed(written: Written) -> int:
    text = written.text("seed") or "0"
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise SettingsError(written.name("seed"), text, "give a whole number from 0 to 2**63 - 1")
    return int(text)


def fuzz(written: Written) -> Examples | None:
    """Raises SettingsError also where hypothesis is not installed."""
    text = written.text("fuzz")
    if not text:
        return None
    if text in PROFILES:
        found = PROFILES[text]
    elif text.isascii() and text.isdigit() and 1 <= int(text) < 2**31:
        found = Examples(int(text))
    else:
        raise SettingsError(written.name("fuzz"), text, f"give a number of calls, 1 or more, or {', '.join(PROFILES)}")
    if importlib.util.find_spec("hypothesis") is None:
        wanted = "it needs hypothesis, which is not installed: pip install 'pytest-probe[fuzz]'"
        raise SettingsError(written.name("fuzz"), text, wanted)
    return found


def repeat(written: Written) -> int:
    text = written.text("repeat")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**31:
        raise SettingsError(written.name("repeat"), text, "give a whole number, 1 or more")
    return int(text)


def flops(written: Written) -> float:
    text = written.text("flops")
    value = _number(text)
    if not value >= 1:
        raise SettingsError(
            written.name("flops"), text, "give a number of operations, as 2e10, or inf to sample nothing"
        )
    return value


def timeout(written: Written) -> float:
    text = written.text("timeout")
    value = _number(text)
    # The timer counts nanoseconds in 64 bits.
    if not 0 <= value < 1e9:
        raise SettingsError(written.name("timeout"), text, "give seconds, 0 or more; 0 is no limit")
    return value


def cache(written: Written) -> Path | None:
    """The folder, made where it is not there. Raises SettingsError where nothing can be written into it."""
    path = next(iter(written.paths("cache")), None)
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        wanted = f"give a folder that can be written: {error.strerror or error}"
        raise SettingsError(written.name("cache"), str(path), wanted) from None
    return path


def page(written: Written) -> Path | None:
    """Raises SettingsError also where what makes the page is not installed."""
    path = writable(written, "html")
    if path is not None and importlib.util.find_spec("jinja2") is None:
        wanted = "it needs jinja2, which is not installed: pip install 'pytest-probe[report]'"
        raise SettingsError(written.name("html"), str(path), wanted)
    return path


def writable(written: Written, name: str) -> Path | None:
    """The file, in a folder that is there. Raises SettingsError where nothing can be written there; workers write
    nothing, and may be on another machine."""
    path = next(iter(written.paths(name)), None)
    if path is None or written.in_worker:
        return path
    try:
        check_replaceable(path)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        wanted = f"give a file that can be written: {error.strerror or error}"
        raise SettingsError(written.name(name), str(path), wanted) from None
    return path


def size(written: Written, name: str) -> int:
    """Bytes."""
    text = written.text(name)
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kMGT]?)B", text)
    size = 0 if match is None else int(float(match[1]) * SIZES[match[2]])
    if not size:
        raise SettingsError(written.name(name), text, "give a size, as 500MB or 10GB")
    return size


def cluster(written: Written) -> str | None:
    """Raises SettingsError also where Ray is not installed."""
    text = written.text("cluster")
    for name in () if text else ("cluster-resource", "cluster-ship"):
        if written.is_given(name) and not written.is_ini(name):
            raise SettingsError(written.name(name), written.text(name), "it needs a cluster: add --probe-cluster=ray")
    if not text:
        return None
    if not re.fullmatch(r"ray|ray://[^\s/]+:[0-9]{1,5}", text):
        raise SettingsError(written.name("cluster"), text, "give ray, or ray://HOST:PORT")
    if importlib.util.find_spec("ray") is None:
        wanted = "it needs Ray, which is not installed: pip install 'pytest-probe[cluster]'"
        raise SettingsError(written.name("cluster"), text, wanted)
    return text


def mode(written: Written) -> tuple[str, ...]:
    return tuple(
        check_name(written.name("mode"), name, (ACCURACY, TIME, MEMORY)) for name in comma_list(written, "mode")
    )


def time_budget(written: Written) -> float:
    value = _number(written.text("time-budget"))
    if not 0 <= value < 1e6:
        raise SettingsError(
            written.name("time-budget"), written.text("time-budget"), "give seconds, 0 or more, as 0.05"
        )
    return value


def time_limit(written: Written) -> float | None:
    text = written.text("time-limit")
    if not text:
        return None
    value = _number(text)
    if not 0 < value < math.inf:
        raise SettingsError(written.name("time-limit"), text, "give a factor above 0, as 1.15")
    return value


def _number(text: str) -> float:
    """NaN for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def shard(written: Written) -> tuple[int, int] | None:
    text = written.text("shard")
    if not text:
        return None
    found = shard_of(text)
    if found is None:
        raise SettingsError(written.name("shard"), text, "give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
    return found


def selection(written: Written, rules: StandardsFile) -> Selection:
    dtypes = [check_name(written.name("dtype"), dtype, DTYPE_CHOICES) for dtype in comma_list(written, "dtype")]
    return Selection(
        apis=tuple(map(frameworks.signatures().spelled, written.value("api") or ())),
        skip_apis=tuple(map(frameworks.signatures().spelled, written.value("skip-api") or ())),
        directions=DIRECTION_CHOICES[choice(written, "direction", tuple(DIRECTION_CHOICES))],
        dtypes=tuple(None if dtype == "recorded" else dtype for dtype in dtypes),
        white_list=rules.white_list,
        black_list=rules.black_list,
    )


def namespaces(written: Written) -> dict[str, str]:
    namespaces = {}
    for line in written.value("namespaces") or ():
        prefix, _, module = (part.strip() for part in line.partition("="))
        if not prefix.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise SettingsError(written.name("namespaces"), line, "give lines of the form Prefix=python.module")
        namespaces[prefix] = module
    return namespaces
