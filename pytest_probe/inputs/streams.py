"""The random stream of each argument: the same on every machine, in every dtype, direction, subset and order."""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.random_streams import RandomStreams

_STREAMS = RandomStreams()


class Streams:
    """The streams of one record: Philox, keyed by a hash of the record's name, the argument's path and the seed."""

    def __init__(self, record: str, seed: int) -> None:
        self._record = record
        self._seed = seed

    def at(self, path: str) -> np.random.Generator:
        """The stream of the argument at a path ("args.0.1", "kwargs.mask", "grad.0"), from its beginning.

        One generator serves all paths of all records: use up a stream before asking for the next.
        """
        return _STREAMS.at(f"{self._record}\0{path}\0{self._seed}")
