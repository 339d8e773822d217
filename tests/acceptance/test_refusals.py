"""What a run refuses before it collects anything: each option's wrong values, and options that do not go together."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from pytest_probe.plugin import pytest_cmdline_main
from tests.acceptance.conftest import DumpMaker
from tests.support.running import refusal

HOOK = "def pytest_probe_register(registry):"
RELU = "registry.calls['Functional.relu'] = print"
FILES = {
    "plain.py": "",
    "empty.py": f"{HOOK} pass",
    "other.py": f"{HOOK} registry.calls['Functional.reluu'] = print",
    "engine.py": f"{HOOK} {RELU}",
    "a[1]": "",
}
NO_DEVICE = "it needs a device, and with --probe-device=recorded no device runs; leave it out"
SHARD = "give I/N, the I-th of N parts, with I from 1 to N, as 1/4"
MISTYPED = {
    "--probe-devcie=cpu": "--probe-devcie: there is no such option; did you mean --probe-device?",
    "--probe-standrad=noise": "--probe-standrad: there is no such option; did you mean --probe-standard?",
    "--probe-wqwqwq": "--probe-wqwqwq: there is no such option; see pytest --help",
    "--probe-standard=nosie": "--probe-standard: 'nosie' *did you mean noise?*",
    "--probe-standard=slef": "--probe-standard: *did you mean self*",
    "--probe-standard=MSProbe-26": "*did you mean msprobe-26?*",
    "--probe-allow=tf23": "--probe-allow: 'tf23' cannot be used; give one of tf32, hf32, bf16x3, bf16, ftz, "
    "reduced-reduction, short-accumulation, truncate, fast-math, auto, none (did you mean tf32?)",
    "--probe-dtype=bf16": "*did you mean bfloat16?*",
    "--probe-direction=forwards": "*did you mean forward?*",
    "--probe-inputs=storde": "--probe-inputs: 'storde' *; give one of auto, generated, stored, exact (did you mean s*",
    "--probe-compile=inducter": "--probe-compile*inducter*did you mean inductor*",
    "--probe-relations=bach": "--probe-relations: 'bach' cannot be used; give one of *did you mean batch?*",
    "--probe-mode=acc,tme": "--probe-mode: 'tme' cannot be used; *time*",
    "--probe-standard=self --probe-self=wider-dtype,finit": "*did you mean finite*",
}
VALUES = {
    "--probe-dump=dmp.json": "--probe-dump: '*dmp.json' cannot be used; *; did you mean *dump.json?",
    "--probe-device=cuba": "--probe-device: 'cuba' *; did you mean cuda?",
    "--probe-device=cpu:x": "--probe-device: 'cpu:x' *; found here: *[a-z0-9]",
    "--probe-dump=no.json": "--probe-dump: '*no.json' cannot be used; there is no such file or folder",
    "--probe-dump=none": "--probe-dump: '*none' cannot be used; the folder holds no dump; *",
    "--probe-dump=a[1]": "--probe-dump: '*' cannot be used; pytest cannot address a path with '[[]' *",
    "--probe-dtype=float12": "--probe-dtype: 'float12' *; give one of recorded, *",
    "--probe-dtype=,": "--probe-dtype: ',' cannot be used; give names separated by commas, none of them empty",
    "--probe-direction=up": "--probe-direction: 'up' *; give one of both, forward, backward",
    "--probe-seed=-1": "--probe-seed: '-1' cannot be used; give a whole number from 0 to 2[*][*]63 - 1",
    "--probe-seed=x": "--probe-seed: 'x' *",
    "--probe-device=nothing": "*nothing*",
    "--probe-device=": "--probe-device: '' cannot be used; give a value, or leave the option out",
    "--probe-device=cpu,cuda": "--probe-device: 'cpu,cuda' *; several devices need workers: add -n 2, or *",
    "--probe-device=recorded,cpu": "--probe-device: 'recorded,cpu' cannot be used; recorded stands alone",
    "--probe-device=tpu --probe-isolate": "--probe-device: 'tpu' cannot be used; torch says: *",
    "--probe-reference-device=nosuch": "--probe-reference-device: 'nosuch' cannot be used; torch says: *",
    "--probe-framework=jax": "--probe-framework: 'jax' cannot be used; give an installed one: *torch*",
    "--probe-reference-framework=jax": "--probe-reference-framework: 'jax' cannot be used; give an *torch*",
    "--probe-api=": "--probe-api: '' cannot be used; give a value, or leave the option out",
    "--probe-flops=many": "--probe-flops: 'many' cannot be used; give a number of operations, as 2e10, or inf *",
    "--probe-flops=0": "--probe-flops: '0' *",
    "--probe-flops=nan": "--probe-flops: 'nan' *",
    "--probe-save=some --probe-out=out": "--probe-save: 'some' *; give one of failing, all",
    "-o probe_strict=maybe": "probe_strict: *maybe*; give true or false",
    "-o probe_seed=x": "probe_seed: 'x' cannot be used; give a whole number",
    "-o probe_namespaces=NPU": "probe_namespaces*'NPU' *; give lines of the form Prefix=python.module",
    "-o probe_namespaces=NPU=nosuch": "probe_namespaces: 'NPU=nosuch' *no module nosuch*",
    **{
        f"--probe-shard={value}": f"--probe-shard: '{value}' cannot be used; {SHARD}"
        for value in ("0/4", "5/4", "a/b", "1", "1/4/4", "-1/4")
    },
    **{
        f"--probe-timeout={value}": f"--probe-timeout: '{value}' cannot be used; give seconds, 0 or more; 0 is no limit"
        for value in ("-1", "nan", "soon", "1e10")
    },
    "--probe-allow=tf32,none": "--probe-allow: 'tf32,none' cannot be used; auto and none stand alone",
    "--probe-device=npu": "*torch has npu with the package torch_npu alone, which is not installed here*",
    **{
        f"--probe-repeat={value}": f"--probe-repeat: '{value}' cannot be used; give a whole number, 1 or more*"
        for value in ("0", "-1", "x", "1.5", "9999999999")
    },
    "--probe-ranks=1": "--probe-ranks: '1' cannot be used; give a whole number, 2 to 4096",
    "--probe-ranks=4096": "--probe-ranks: '4096' cannot be used; each is a process of 150 MB, and this machine has*",
    "--probe-cluster=dask": "--probe-cluster: 'dask' cannot be used; give ray, or ray://HOST:PORT",
    "--probe-compile=dynamic": "*give a compiler, as inductor,dynamic",
    "--probe-relations=again,": "--probe-relations: 'again,' cannot be used; give names separated by commas*",
    "--probe-sensitivity=101": "*argument --probe-sensitivity: ignored explicit argument '101'*",
    "--probe-mode=": "--probe-mode: '' cannot be used; give a value*",
    "--probe-mode=time --probe-time-budget=-0.1": "--probe-time-budget: '-0.1' * give seconds, 0 or more*",
    "--probe-mode=time --probe-time-budget=fast": "--probe-time-budget: 'fast' * give seconds*",
    "--probe-mode=time --probe-time-limit=-1": "--probe-time-limit: '-1' * give a factor above 0*",
    "--probe-mode=time --probe-time-limit=nan": "--probe-time-limit: 'nan' * give a factor above 0*",
    "--probe-cache=none,size=10": "--probe-cache: '10' cannot be used; give a size, as 500MB*",
    "--probe-cache=none,size=0GB": "--probe-cache: '0GB' cannot be used; give a size, as*",
    "--probe-cache=none,size=-1GB": "--probe-cache: '-1GB' cannot be used; give a size, as*",
    "--probe-cache=none,size=tenGB": "--probe-cache: 'tenGB' cannot be used; give a size*",
    "--probe-against=dump.json --probe-against-map=none.yaml": "*none.yaml*cannot be read*",
    "--probe-against=dump.json --probe-standard=msprobe": "--probe-standard: 'msprobe' cannot be used; with "
    "--probe-against give auto, *",
    "--probe-against-call=nowhere": "*cannot be imported: ModuleNotFoundError: No module named 'nowhere'*",
    "--probe-against-call=nowhere.py": "*cannot be imported: FileNotFoundError*",
    "--probe-against-call=plain.py": "*it has no function pytest_probe_register(registry)*",
    "--probe-against-call=empty.py": "*adds no calls*",
    "--probe-against-call=other.py": "*no record is one of its calls (Functional.reluu); near *: Functional.relu*",
}
# Files and folders that the run would write.
UNWRITABLE = {
    **{f"--probe-{name}={path}": f"--probe-{name}: * cannot be used; give a file that can be written: {why}*"
       for name in ("html", "history")
       for path, why in (
           ("missing/x", "No such file"), (".", "Is a directory"), ("dump.json/x", "Not a"), ("pipe", "it is a FIFO")
       )},
    "--probe-cache=dump.json/cache": "--probe-cache: '*dump.json*cache' cannot be used; give a folder that can be*",
    "--probe-cache=dump.json": "--probe-cache: '*dump.json' cannot be used; give a folder that can be written:*",
    "--probe-out=dump.json/out": "--probe-out: '*out' cannot be used; it cannot be written to: Not a directory",
    "--probe-out=/proc/out": "--probe-out: '*out' cannot be used; it cannot be written to: *",
    "--probe-baseline=.": "--probe-baseline: * cannot be used; it cannot be read: Is a directory",
}  # fmt: skip
TOGETHER = {
    "--probe-capture=out": "--probe-capture: 'out' cannot be used together with --probe-dump; record in one run and *",
    "--probe-standard=benchmark": "--probe-standard: 'benchmark' cannot be used; it needs another option: add "
    "--probe-benchmark=DIR",
    "--probe-save=failing": "--probe-save: 'failing' *; it needs another option: add --probe-out=DIR",
    "--probe-resume": "--probe-resume: True cannot be used; it needs another option: add --probe-out=DIR",
    "--probe-baseline-update": "--probe-baseline-update: True cannot be used; it needs another option: add "
    "--probe-baseline=FILE",
    "--probe-self=wider-dtype": "--probe-self: 'wider-dtype' cannot be used; it needs another option: add "
    "--probe-standard=self",
    "--probe-relations=again --probe-against=dump.json": "--probe-relations: 'again' cannot be used; it needs a "
    "device, and with --probe-against=dump.json no device runs; leave it out",
    "--probe-baseline=b --probe-against-framework=torch": "--probe-baseline: 'b' cannot be used; it needs results of "
    "one side, and with --probe-against-framework=torch two sides are compared; leave it out",
    "--probe-emulate --probe-framework=torch": "--probe-emulate: True cannot be used; with --probe-framework=torch the "
    "other framework has kernels of 16 bit; leave it out",
    "--probe-compile=eager --probe-standard=finite": "--probe-compile: 'eager' cannot be used; with "
    "--probe-standard=finite there is no reference for what a compiler makes; leave it out",
    "--probe-compile=eager -o probe_against_call=engine.py": "--probe-compile: 'eager' cannot be used; it needs calls "
    "that the device makes in its own way, and with probe_against_call they are made in another way; leave it out",
    "--probe-device=recorded --probe-inputs=generated": f"--probe-inputs: 'generated' cannot be used; {NO_DEVICE}",
    "--probe-device=recorded --probe-standard=self": "--probe-standard: 'self' * it needs a device, *",
    "--probe-device=recorded --probe-compile=eager": "--probe-compile*it needs a device*leave it out*",
    "--probe-device=recorded --probe-relations=all": "--probe-relations: 'all' *; it needs a device, *",
    "--probe-device=recorded --probe-framework=torch": "--probe-framework: 'torch' *no device runs*",
    "--probe-device=recorded --probe-mode=time": "--probe-mode: 'time' * no device runs; leave it out*",
    "--probe-device=recorded --probe-against-call=engine.py": "*--probe-against-call*leave it out*",
    "--probe-fuzz=2 --probe-reference-framework=torch": "--probe-reference-framework: *calls are drawn*",
    "--probe-fuzz=5 --probe-mode=time": "--probe-mode: 'time' *it needs recorded calls, *; leave it out*",
    "--probe-fuzz=quick --probe-against=dump.json": "--probe-against: * it needs recorded calls, and *=quick *",
    "--probe-fuzz=quick --probe-against-call=engine.py": "*--probe-against-call*leave it out*",
    "--probe-mode=acc,time --probe-against-call=engine.py": "*--probe-against-call*leave it out*",
    "--probe-mode=time --probe-relations=all": "--probe-relations: 'all' * needs verdicts, *without acc; *",
    "--probe-mode=time --probe-sensitivity": "*it needs verdicts, and with --probe-mode=time nothing is judged*",
    "--probe-mode=time --probe-time-limit=1.15": "--probe-time-limit: '1.15' * it needs times to compare with: add "
    "--probe-benchmark=DIR or *",
    "--probe-mode=mem --probe-emulate": "--probe-emulate: *measures no times and no memory, *=mem*",
    "--probe-cluster=ray --probe-isolate": "--probe-isolate: True cannot be used; with --probe-cluster=ray *",
    "--probe-cluster=ray --probe-fuzz=5": "--probe-cluster: 'ray' cannot be used; it needs recorded calls, *",
    "--probe-compile=eager --probe-relations=again": "--probe-relations*leave it out*",
    "--probe-against=dump.json --probe-against-call=engine.py": "*--probe-against-call*leave it out*",
    "--probe-against=dump.json --probe-device=cpu": "--probe-device: 'cpu' cannot be used; it needs a device, and with "
    "--probe-against=*",
    "--probe-against=dump.json --probe-dtype=bfloat16": "--probe-dtype: 'bfloat16' cannot be used; *",
}


@pytest.mark.parametrize(("args", "message"), [*(MISTYPED | VALUES | UNWRITABLE | TOGETHER).items()])
def test_a_run_refuses(pytester: pytest.Pytester, make_dump: DumpMaker, args: str, message: str) -> None:
    make_dump()
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("none").mkdir()
    os.mkfifo("pipe")
    before = sorted(Path().rglob("*"))
    refusal(pytester, "--probe-dump=dump.json", *shlex.split(args)).fnmatch_lines([message.replace("?", "[?]")])
    assert sorted(Path().rglob("*")) == before
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            "--probe-isolate",
            "True cannot be used; under -n each worker is a process of its own already; leave one of the *",
        ),
        ("--probe-listen=file:///nowhere", "* cannot be used; *; leave -n out"),
    ],
)
def test_what_workers_do_not_go_with_is_refused_before_xdist_starts_them(
    pytester: pytest.Pytester, option: str, words: str
) -> None:
    config = pytester.parseconfig("--probe-dump=dump.json", option, "-n1")
    with pytest.raises(pytest.UsageError) as raised:
        next(pytest_cmdline_main(config))
    pytest.LineMatcher([str(raised.value)]).fnmatch_lines([f"{option.partition('=')[0]}: {words}"])
