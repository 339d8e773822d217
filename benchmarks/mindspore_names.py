"""Do functions of `mindspore.mint` and methods of tensors mean what torch's of the same name mean? Both make torch's
own sample calls in float64. What has another name or other parameters is proved by `make mapping-mindspore`.

    python -m benchmarks.mindspore_names [GLOB]        # in the environment of make test-mindspore

A name is proved where at least 20 calls agree, outputs and gradients of all floating tensors, within 1e-12 of their
scale, and none differs. Where MindSpore's kernel computes float64 in float32, or takes float32 alone, calls agree
within 1e-5, and the name is proved in float32. A call that MindSpore's CPU refuses counts for nothing; a name whose
kernel ends the process is "crashed". Calls whose outputs have another dtype or shape than torch's are no mistake of a
check, which skips such a record: a name with such calls, and no other that differs, is "other kind". A name that
differs and for which no check asks torch is "left out"; "known" is one in whose kernel on the CPU KNOWN says the error;
"differs" is what nobody has explained. Without GLOB a summary follows.
"""

from __future__ import annotations

import fnmatch
import itertools
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from msgspec import Struct
from torch.testing._internal.common_methods_invocations import op_db

from benchmarks.mapping.drawing import DrawnCall
from benchmarks.mapping.entries import both_of_mindspore
from benchmarks.mapping.proof import CALLS, LIMIT, How, Pair, Refused, difference
from pytest_probe.frameworks.mapping.framework import function_at
from pytest_probe.frameworks.mindspore.signatures import entry_of, path_of
from pytest_probe.frameworks.mindspore.stored import UNLIKE
from pytest_probe.model.dump import DtypeSpec, leaves
from pytest_probe.model.run import Leaf, map_tree

MOST, ROUNDS = 60, 20
# Some kernels take float64 and compute in float32; some take float32 alone.
SINGLE = 1e-5
_STRETCHED = "where a tensor is stretched, its kernel reads beyond the end of it"
# Faults of MindSpore 2.10.0's kernels on a CPU (docs/findings.md). Such a name means torch's function.
KNOWN = {
    "cross": _STRETCHED,
    "cumprod": "the gradient is NaN where an element is 0",
    "erfinv": "float64 is off near 1",
    "igamma": _STRETCHED,
    "igammac": _STRETCHED,
    "nextafter": _STRETCHED,
    "polar": _STRETCHED,
    "real": "the gradient of real numbers is complex",
    "tile": "the gradient of a tensor that is taken no times is what memory held",
}
# They give what nobody wrote.
_UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


VERDICTS = ("proved", "in float32", "some agree", "other kind", "known", "left out", "differs", "refused", "crashed")


class Proof(Struct):
    """Of a name: calls that agree, those of them in float32, calls that MindSpore refused, and the first call that
    differs."""

    name: str
    agreed: int = 0
    single: int = 0
    refused: int = 0
    unlike: int = 0
    differs: str = ""
    reason: str = ""

    @property
    def verdict(self) -> str:
        if self.differs and self.name in UNLIKE:
            return "left out"
        if self.differs:
            return "known" if self.name.partition(".")[2] in KNOWN else "differs"
        if self.unlike:
            return "other kind"
        proved = "in float32" if self.single else "proved"
        return proved if self.agreed >= CALLS else "some agree" if self.agreed else "refused"


def main() -> None:
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        for proof in proofs(both_of_mindspore(), sys.argv[1]):
            if proof.agreed or proof.refused or proof.unlike or proof.differs:
                known = KNOWN.get(proof.name.partition(".")[2], "")
                said = (
                    known if proof.verdict == "known" else proof.differs or (proof.reason if not proof.agreed else "")
                )
                print(f"{proof.verdict:<11}{proof.name:<44}{proof.agreed:>4} agree {proof.refused:>4} refused  {said}")
        return
    lines = list(all_lines())
    for verdict in VERDICTS:
        print(f"{sum(line.startswith(verdict) for line in lines)} {verdict}")


def all_lines() -> Iterator[str]:
    """The lines of all names, which are printed as they come. Some kernels end the process: names that begin alike have
    one of their own, and where that ends each name has."""
    known = sorted({name for op in op_db for name in names(op)})
    for group, together in itertools.groupby(known, lambda name: name[: name.index(".") + 2]):
        ended, found = lines_of(f"{group}*")
        if ended:
            found = [line for name in together for line in lines_of(name)[1]]
        for line in found:
            print(line, flush=True)
            yield line


def lines_of(glob: str) -> tuple[bool, list[str]]:
    """Did the process end early, and what it printed."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.mindspore_names", glob]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.returncode != 0, done.stdout.splitlines() if not done.returncode else [f"crashed    {glob}"]


def proofs(pair: Pair, glob: str) -> Iterator[Proof]:
    for op in op_db:
        for name in names(op):
            if fnmatch.fnmatch(name, glob) and not op.variant_test_name and op.name not in _UNINITIALISED:
                yield prove(pair, op, name)


def names(op: Any) -> Iterator[str]:
    """What a dump of MindSpore calls it: a function, and a method; without those that the map has."""
    functional = op.name.removeprefix("nn.functional.")
    found = [f"MintFunctional.{functional}" if functional != op.name else f"Mint.{op.name}"]
    if op.method_variant is not None and "." not in op.name:
        found.append(f"Tensor.{op.name}")
    yield from (name for name in found if entry_of(name) is None)


def prove(pair: Pair, op: Any, name: str) -> Proof:
    proof = Proof(name)
    try:
        own = function_at(path_of(name))
    except AttributeError:
        return proof
    other = op.method_variant if name.startswith("Tensor.") else op.op
    for sample in samples(op):
        if proof.agreed + proof.refused + proof.unlike >= MOST and (proof.agreed >= CALLS or not proof.agreed):
            break
        args, kwargs = taken([sample.input, *sample.args]), taken(sample.kwargs)
        # Of empty tensors some of MindSpore's kernels divide by zero, which ends the process.
        if any(isinstance(value, Leaf) and not value.array.size for _, value in leaves([args, kwargs], "")):
            continue
        for dtype in ("float64", "float32"):
            call = DrawnCall(tuple(in_dtype(args, dtype)), in_dtype(kwargs, dtype), {})
            found = compared(own, other, call, pair, dtype)
            if not isinstance(found, str):
                break
        if isinstance(found, str):
            proof.refused += 1
            proof.reason = proof.reason or found
            continue
        if found > SINGLE and compared(own, other, call, pair, dtype, values=False) != 0:
            proof.unlike += 1
            continue
        if found > SINGLE:
            proof.differs = f"by {found:.2g}: {shown(args)} {shown(kwargs)}"[:120]
            return proof
        proof.single += found > LIMIT
        proof.agreed += 1
    return proof


def compared(own: Any, other: Any, call: DrawnCall, pair: Pair, dtype: str, values: bool = True) -> float | str:
    """How far both are apart, without values in their dtypes and shapes alone; why one of them refuses the call."""
    try:
        return difference(own, other, call, pair, How(dtype=dtype, values=values))
    except Refused as error:
        return str(error).splitlines()[0][:110]


def in_dtype(tree: Any, dtype: Any) -> Any:
    def leaf(value: Any, name: str) -> Any:
        wanted = isinstance(value, Leaf) and value.requires_grad
        return Leaf(value.array.astype(dtype), True) if wanted else value

    return map_tree(tree, "", leaf)


def samples(op: Any) -> Iterator[Any]:
    """torch's samples, drawn anew ROUNDS times: of a function of one tensor it has one or two."""
    for _ in range(ROUNDS):
        yield from itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), MOST)


def taken(tree: Any) -> Any:
    def leaf(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            return Leaf(value.detach().numpy().copy(), value.is_floating_point())
        return DtypeSpec(str(value).removeprefix("torch.")) if isinstance(value, torch.dtype) else value

    return map_tree(tree, "", leaf)


def shown(tree: Any) -> str:
    return str(map_tree(tree, "", lambda value, _: f"{value.array.shape}" if isinstance(value, Leaf) else value))


if __name__ == "__main__":
    main()
