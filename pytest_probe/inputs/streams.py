"""The random stream of each argument: the same on every machine, in every dtype, direction, subset and order."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


class Streams:
    """The streams of one record: Philox, keyed by a hash of the record's name, the argument's path and the seed."""

    def __init__(self, record: str, seed: int) -> None:
        self._record = record
        self._seed = seed
        self._bits = np.random.Philox(key=0)
        self._start: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, path: str) -> np.random.Generator:
        """The stream of the argument at a path ("args.0.1", "kwargs.mask", "grad.0"), from its beginning.

        One generator serves all paths, since making one costs eight times a change of key: use up a stream before
        asking for the next.
        """
        name = f"{self._record}\0{path}\0{self._seed}".encode()
        digest = hashlib.blake2b(name, digest_size=16).digest()
        self._start["state"]["key"] = np.frombuffer(digest, "<u8").astype(np.uint64)
        self._bits.state = self._start
        return self._generator
