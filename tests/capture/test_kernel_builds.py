from __future__ import annotations

import platform
import runpy
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_probe.capture import kernel
from pytest_probe.numerics import kernel as of_numbers
from tests.support import kernels

pytestmark = pytest.mark.slow

# The bits of the least subnormal float32, added to itself, and what stands in a process that flushes it.
SUBNORMAL = """
import sys, struct
if sys.argv[1] == "kernel":
    import _kernel
import numpy as np
least = np.array([1], np.uint32).view(np.float32)
print((least + least).view(np.uint32)[0])
"""


def test_the_process_keeps_its_subnormal_numbers(tmp_path: Path) -> None:
    path = kernels.built(tmp_path, CFLAGS="-Ofast", LDFLAGS="-ffast-math")
    assert kernels.run(SUBNORMAL, "kernel", folder=path.parent).stdout == "2\n"


# Under the sanitizers: what test_kernel.py reads.
BESIDE_NUMPY = """
import math
import _kernel
from tests.capture import test_kernel as tests
for name in tests.kernel.DTYPES:
    tests.check_sizes(_kernel, name)
for name in tests.FLOATS:
    tests.check_repeats(_kernel, name)
    for extents, strides in tests.SAMPLES:
        tests.check_sample(_kernel, name, extents, strides)
    tests.check_strange(_kernel, name, math.nan)
    tests.check_strange(_kernel, name, -math.inf)
tests.test_stacks_of_frames_equal_pythons(_kernel)
print(_kernel.INSTRUCTIONS)
"""


@pytest.mark.parametrize("variant", ["", "-DNARROW", "-DBASELINE"])
def test_the_sanitizers_find_nothing(variant: str, tmp_path: Path) -> None:
    """ASan and UBSan, with this CPU's instructions, without AVX-512 and as on a CPU of an unknown kind."""
    checks = "-fsanitize=address,undefined -fno-sanitize-recover=all"
    library = kernels.sanitizer()
    path = kernels.built(tmp_path, CFLAGS=f"{checks} {variant}", LDFLAGS=checks)
    told = kernels.run(BESIDE_NUMPY, folder=path.parent, LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0")
    narrower = {"": instructions(), "-DNARROW": instructions().replace("avx512", "avx2"), "-DBASELINE": "baseline"}
    expected = narrower[variant]
    assert (told.returncode, told.stdout) == (0, f"{expected}\n"), told.stderr


def instructions() -> str:
    """The widest that this CPU has of those that the kernel uses."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "baseline"
    flags = set(Path("/proc/cpuinfo").read_text().split())
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"} <= flags:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= flags else "baseline"


@pytest.mark.parametrize("compiler", ["false", "/nowhere/cc"])
def test_a_compiler_that_fails_ends_the_build_with_a_line(compiler: str, tmp_path: Path) -> None:
    told = kernels.build(tmp_path / "made", CC=compiler)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.splitlines()[-1].startswith("CompileError: ")
    assert not (tmp_path / "made").exists()


def test_a_folder_that_cannot_be_written_to_ends_the_build_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    if shutil.which(kernels.COMPILER) is None:
        pytest.skip("needs a C compiler")
    told = kernels.build(tmp_path / "file" / "folder")
    assert (told.returncode, told.stdout) == (1, "")
    assert "NotADirectoryError" in told.stderr.splitlines()[-1]


def test_nothing_is_left_beside_the_kernel(built_kernel: Path) -> None:
    assert [path.name for path in built_kernel.parent.iterdir()] == ["_kernel.abi3.so"]


@dataclass
class Hook:
    """What hatchling gives a hook, and what the hook told it."""

    root: str
    config: dict[str, Any] = field(default_factory=lambda: {"force_include": {}})
    warnings: list[str] = field(default_factory=list)

    @property
    def app(self) -> Hook:
        return self

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def wheel(root: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Hook, dict[str, bytes]]:
    """What the hook does where a wheel is built of a tree, and the files that it adds."""
    shutil.copytree(kernels.BUILD.parent, root / "kernel")
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = Hook  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    hook = runpy.run_path(str(root / "kernel" / "hatch_build.py"))["KernelHook"](str(root))
    hook.initialize(version, hook.config)
    files = {place: Path(path).read_bytes() for path, place in hook.config["force_include"].items()}
    hook.finalize(version, hook.config, "")
    return hook, files


def test_a_wheel_with_the_kernel_is_of_its_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.built(tmp_path)
    hook, files = wheel(tmp_path / "tree", "standard", monkeypatch)
    assert list(files) == [f"pytest_probe/{room}/_kernel.abi3.so" for room in ("capture", "numerics")]
    assert all(content.startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe")) for content in files.values())
    assert hook.config["pure_python"] is False
    assert hook.config["tag"].startswith("cp310-abi3-")
    assert hook.warnings == []


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_without_a_compiler_a_line_says_so(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    hook, files = wheel(tmp_path, version, monkeypatch)
    assert (files, hook.config) == ({}, {"force_include": {}})
    (warning,) = hook.warnings
    assert warning.startswith("pytest-probe is installed without its compiled kernel (CompileError: ")
    assert "\n" not in warning
    assert not list(tmp_path.rglob("*.so"))


def test_the_compilers_own_words_are_in_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.built(tmp_path)
    monkeypatch.setenv("CFLAGS", "-D__FAST_MATH__")
    # In a folder with a long path, which the compiler's lines begin with.
    (warning,) = wheel(tmp_path / "/".join(["a-long-folder-name"] * 8) / "tree", "standard", monkeypatch)[0].warnings
    assert "error: #error" in warning
    assert "subnormal" in warning


def test_an_editable_install_has_the_kernel_in_its_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.built(tmp_path / "first")
    hook, files = wheel(tmp_path / "tree", "editable", monkeypatch)
    assert (files, hook.config, hook.warnings) == ({}, {"force_include": {}}, [])
    for place, room in (("capture", kernel), ("numerics", of_numbers)):
        assert kernels.loaded(tmp_path / f"tree/pytest_probe/{place}/_kernel.abi3.so").REVISION == room.REVISION


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(tmp_path)
    yield "made_kernel"
    sys.modules.pop("made_kernel", None)


def test_a_missing_kernel_is_named_as_not_built() -> None:
    assert kernel.load("pytest_probe.capture.no_kernel") == (None, "none was built for this Python")


def test_a_kernel_of_another_platform_is_not_loaded(name: str, tmp_path: Path) -> None:
    """As one for aarch64 in a folder that two machines share: its machine's number stands in the ELF header."""
    header = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9) + (3).to_bytes(2, "little") + (0xF3).to_bytes(2, "little")
    (tmp_path / f"{name}.abi3.so").write_bytes(header + bytes(200))
    found, why = kernel.load(name)
    assert found is None
    assert why.startswith("it cannot be loaded: ")


def test_a_kernel_for_another_python_is_not_found(name: str, built_kernel: Path, tmp_path: Path) -> None:
    shutil.copy(built_kernel, tmp_path / f"{name}.cpython-399-x86_64-linux-gnu.so")
    assert kernel.load(name) == (None, "none was built for this Python")


def test_a_kernel_of_an_earlier_source_is_not_used(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("REVISION = 0")
    assert kernel.load(name) == (None, "it was built from another source; install pytest-probe again")


def test_the_source_is_the_one_that_is_expected(compiled: ModuleType) -> None:
    assert compiled.REVISION == kernel.REVISION
    assert instructions() == compiled.INSTRUCTIONS


def test_version_says_whether_the_kernel_counts(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "compiled", None)
    monkeypatch.setattr(kernel, "_said", "none was built for this Python")
    assert kernel.kernel_line() == "captures count without the compiled kernel (none was built for this Python)"
    assert kernel.numbers() == {}
    monkeypatch.setattr(kernel, "compiled", compiled)
    monkeypatch.setattr(kernel, "_said", "avx2")
    assert kernel.kernel_line() == "captures count with the compiled kernel (avx2)"
    assert list(kernel.numbers()) == list(kernel.DTYPES)
