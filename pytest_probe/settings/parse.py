"""All options together: read, and checked against one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_probe.errors import SettingsError
from pytest_probe.model.run import RECORDED
from pytest_probe.options import NAMED, OPTIONS
from pytest_probe.settings import dump_paths, values
from pytest_probe.settings.choices import ACCURACY, BITS, INPUTS, METRICS, SAVE
from pytest_probe.settings.settings import Settings
from pytest_probe.settings.written import Written
from pytest_probe.standards.tools.project_rules import StandardsFile, read_standards_file
from pytest_probe.standards.tools.table import BENCHMARK

if TYPE_CHECKING:
    import pytest


def parse(config: pytest.Config, *, paths_given: bool) -> Settings:
    """Read and check every option. paths_given: the command line has positional paths, so an ini's dumps are out.

    Raises SettingsError naming the option, its value and what would do.
    """
    written = Written(config)
    out, standards_file = written.paths("out"), written.paths("standards-file")
    rules = read_standards_file(standards_file[0]) if standards_file else StandardsFile()
    dumps = () if paths_given and written.is_ini("dump") else dump_paths.dumps(written)
    settings = Settings(
        dumps=dumps,
        dump_files=dump_paths.files_of(written, dumps),
        devices=values.comma_list(written, "device"),
        inputs=values.choice(written, "inputs", INPUTS),
        data_dir=values.data_dir(written),
        seed=values.seed(written),
        selection=values.selection(written, rules),
        standard=written.text("standard"),
        standards_file=standards_file[0] if standards_file else None,
        rules=rules,
        allow=values.modes(written),
        repeat=values.repeat(written),
        mode=values.mode(written),
        time_budget=values.time_budget(written),
        time_limit=values.time_limit(written),
        flops=values.flops(written),
        reference_device=written.text("reference-device"),
        benchmark=next(iter(written.paths("benchmark")), None),
        baseline=next(iter(written.paths("baseline")), None),
        update=bool(written.value("baseline-update")),
        gate=values.choice(written, "gate", (METRICS, BITS)),
        markdown=values.writable(written, "markdown"),
        html=values.page(written),
        history=values.writable(written, "history"),
        fuzz=values.fuzz(written),
        fuzz_save=next(iter(written.paths("fuzz-save")), None),
        strict=bool(written.value("strict")),
        emulate=bool(written.value("emulate")),
        out=out[0] if out else None,
        save=values.choice(written, "save", SAVE) if written.value("save") else None,  # type: ignore[arg-type]
        resume=bool(written.value("resume")),
        shard=values.shard(written),
        unique=bool(written.value("unique")),
        cache=values.cache(written),
        cache_size=values.size(written, "cache-size"),
        timeout=values.timeout(written),
        isolate=bool(written.value("isolate")),
        cluster=values.cluster(written),
        cluster_resource=written.text("cluster-resource") or None,
        cluster_ship=values.size(written, "cluster-ship"),
        collect=bool(written.value("collect")),
        namespaces=values.namespaces(written),
        given=written.given(),
        from_ini=frozenset(option.name for option in OPTIONS if written.is_ini(option.name)),
    )
    _check_recorded(written, settings)
    _check_times(written, settings)
    _check_cluster(written, settings)
    _check_needs(written, settings)
    return settings


def _check_needs(written: Written, settings: Settings) -> None:
    """What an option needs besides."""
    if settings.standard == BENCHMARK and settings.benchmark is None:
        wanted = f"it needs another run to compare with: add {NAMED['benchmark'].flag}=DIR, that run's --probe-out"
        raise SettingsError(written.name("standard"), BENCHMARK, wanted)
    if settings.baseline is None:
        for name in ("baseline-update", "gate"):
            if written.is_given(name):
                wanted = "it needs a baseline: add --probe-baseline=FILE"
                raise SettingsError(written.name(name), written.text(name), wanted)
    if settings.fuzz_save is not None and settings.fuzz is None:
        wanted = f"it keeps what a search finds: add {NAMED['fuzz'].flag}=N"
        raise SettingsError(written.name("fuzz-save"), str(settings.fuzz_save), wanted)
    if settings.save and settings.out is None:
        raise SettingsError(written.name("save"), settings.save, "it needs a folder: add --probe-out=DIR")
    if settings.resume and settings.out is None:
        raise SettingsError(
            written.name("resume"), True, "it needs the folder of the run to go on with: add --probe-out=DIR"
        )


def _check_recorded(written: Written, settings: Settings) -> None:
    """Stored outputs belong to the stored inputs, in the recorded dtype, and cannot be computed again."""
    if RECORDED not in settings.devices:
        return
    for name, alone in (
        ("device", settings.devices == (RECORDED,)),
        ("inputs", settings.inputs != "generated"),
        ("dtype", settings.selection.dtypes == (None,)),
        ("repeat", settings.repeat == 1),
        ("mode", settings.mode == (ACCURACY,)),
        ("emulate", not settings.emulate),
    ):
        if not alone:
            wanted = f"--probe-device={RECORDED} judges what the dump stored, and no device runs; leave it out"
            raise SettingsError(written.name(name), written.text(name), wanted)


def _check_times(written: Written, settings: Settings) -> None:
    """What a run that measures cannot do besides, and what a limit needs."""
    measured = [name for name in settings.mode if name != ACCURACY]
    for name, asked in (("fuzz", settings.fuzz is not None), ("emulate", settings.emulate)):
        if measured and asked:
            measuring = f"{written.name('mode')}={','.join(settings.mode)}"
            wanted = f"with {measuring} the device's own calls are measured; leave it out"
            raise SettingsError(written.name(name), written.text(name), wanted)
    if settings.time_limit is None:
        return
    limit = written.text("time-limit")
    if not settings.times and not written.is_ini("time-limit"):
        raise SettingsError(
            written.name("time-limit"), limit, f"no times are measured: add {NAMED['mode'].flag}=acc,time"
        )
    if settings.times and settings.benchmark is None and settings.baseline is None:
        wanted = "it needs times to compare with: add --probe-benchmark=DIR or --probe-baseline=FILE"
        raise SettingsError(written.name("time-limit"), limit, wanted)


def _check_cluster(written: Written, settings: Settings) -> None:
    """What goes with no cluster."""
    for name, asked in (("fuzz", settings.fuzz is not None), ("isolate", settings.isolate)):
        if settings.cluster is not None and asked:
            wanted = f"with {written.name('cluster')} cases of dumps run, each in a process of its device; leave it out"
            raise SettingsError(written.name(name), written.text(name), wanted)
