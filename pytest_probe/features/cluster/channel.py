"""Messages between a host and its process: whole or not at all."""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")
# What ends the answers to one message.
END = pickle.dumps(None, pickle.HIGHEST_PROTOCOL)


class Channel:
    """Two pipes, one in each direction."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: object) -> None:
        """Raises BrokenPipeError where nobody reads any more."""
        self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def send_bytes(self, content: bytes) -> None:
        """Send what is pickled already."""
        self._writer.write(_LENGTH.pack(len(content)))
        self._writer.write(content)
        self._writer.flush()

    def receive(self) -> Any:
        """Raises EOFError where the other side has ended."""
        return pickle.loads(self.receive_bytes())

    def receive_bytes(self) -> bytes:
        """A message as it was sent, pickled."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return self._read(length)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _read(self, count: int) -> bytes:
        content = self._reader.read(count)
        if len(content) < count:
            raise EOFError
        return content
