"""Random numbers by key: the same on every machine, in every dtype, direction, subset and order."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np


class RandomStreams(threading.local):
    """One Philox generator for each thread. A new key costs a tenth of a new generator."""

    def __init__(self) -> None:
        bits = np.random.Philox(key=0)
        self._bits = bits
        self._start: Any = bits.state
        self._generator = np.random.Generator(bits)

    def at(self, name: str) -> np.random.Generator:
        """The stream of a name, from its beginning. The next call ends it."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        self._start["state"]["key"] = np.frombuffer(digest, "<u8").astype(np.uint64)
        self._bits.state = self._start
        return self._generator


_STREAMS = RandomStreams()


class RecordStreams:
    """The streams of one record: Philox, keyed by a hash of the record's name, the argument's path and the seed."""

    def __init__(self, record: str, seed: int) -> None:
        self._record = record
        self._seed = seed

    def at(self, path: str) -> np.random.Generator:
        """The stream of the argument at a path ("args.0.1", "kwargs.mask", "grad.0"), from its beginning.

        One generator serves all paths of all records: the next call ends this stream.
        """
        return _STREAMS.at(f"{self._record}\0{path}\0{self._seed}")
