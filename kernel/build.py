"""Compile a kernel: python kernel/build.py FOLDER [numerics]

Writes _kernel.abi3.so into the folder and prints its path, or ends with a line that says why not: the kernel of
captures, or that of pytest_probe/numerics. CC and CFLAGS are taken as for any extension.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

# Only these flags for mathematics: -ffast-math, -Ofast and -funsafe-math-optimizations would make subnormal numbers
# zero in every process that loads the kernel. CFLAGS may ask for them, and the last word counts.
SAFE = ("-fno-fast-math", "-fno-unsafe-math-optimizations")
FLAGS = ("-O3", "-g0", "-fopenmp-simd", *SAFE, "-fno-math-errno", "-fno-trapping-math")
# Of each kernel: where its sources are, and its further flags. NumPy's bits ask for each rounding that NumPy has.
KERNELS = {"capture": (".", ()), "numerics": ("numerics", ("-ffp-contract=off",))}


def compiled(folder: Path, name: str) -> Path:
    """The kernel of this name in this folder. Whatever goes wrong raises, SystemExit among it."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise RuntimeError("this Python does not load extensions of the limited API")
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    place, further = KERNELS[name]
    # Seen from its own folder, since objects stand under their sources' paths.
    kernel = Extension(
        "_kernel",
        [os.path.relpath(source) for source in sorted((Path(__file__).parent / place).glob("*.c"))],
        py_limited_api=True,
        extra_compile_args=[*FLAGS, *further],
        extra_link_args=["-O3", *SAFE],
    )
    command = build_ext(Distribution({"name": "kernel", "ext_modules": [kernel]}))
    with tempfile.TemporaryDirectory() as temporary:
        command.build_temp = command.build_lib = temporary
        command.ensure_finalized()
        # It prints its steps to where the path shall stand.
        with contextlib.redirect_stdout(sys.stderr):
            command.run()
        (built,) = map(Path, command.get_outputs())
        return placed(built, folder)


def placed(built: Path, folder: Path) -> Path:
    """Moved in one step: a process may run the one that was there."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(built.read_bytes())
    os.chmod(name, 0o755)
    os.replace(name, folder / built.name)
    return folder / built.name


def main() -> None:
    try:
        print(compiled(Path(sys.argv[1]).absolute(), *(sys.argv[2:] or ["capture"])))
    except (Exception, SystemExit) as error:
        first = str(error).strip().partition("\n")[0]
        sys.exit(f"{type(error).__name__}: {first}" if first else type(error).__name__)


if __name__ == "__main__":
    main()
