"""Random numbers by key: the same on every machine, whatever was drawn before."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np


class RandomStreams(threading.local):
    """One Philox generator a thread, whose key is changed: making one costs ten times as much."""

    def __init__(self) -> None:
        bits = np.random.Philox(key=0)
        self._bits = bits
        self._start: Any = bits.state
        self._generator = np.random.Generator(bits)

    def at(self, name: str) -> np.random.Generator:
        """The stream that a name has, from its beginning. Use it up before asking for the next."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        self._start["state"]["key"] = np.frombuffer(digest, "<u8").astype(np.uint64)
        self._bits.state = self._start
        return self._generator
