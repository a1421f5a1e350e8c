"""How the trainer, the zygote and a box talk: frames of JSON with bytes behind it, each with its lengths in front."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

from .memory import Memory

_HEADER = struct.Struct("<II")
_CHUNK = 1 << 20
MAX_JSON, MAX_BLOB = 1 << 24, 1 << 30


class FrameError(Exception):
    """What came is no frame, or the other side has gone."""


def pack(message: dict[str, Any], blob: bytes = b"") -> bytes:
    """Returns a frame."""
    text = json.dumps(message).encode()
    return _HEADER.pack(len(text), len(blob)) + text + blob


def sizes(header: bytes) -> tuple[int, int]:
    """Returns the lengths of text and blob.

    Raises:
        FrameError: longer than any real frame.
    """
    text, blob = _HEADER.unpack(header)
    if text > MAX_JSON or blob > MAX_BLOB:
        raise FrameError(f"a frame of {text} and {blob} bytes")
    return text, blob


def parse(text: bytes) -> dict[str, Any]:
    """Returns the message of a frame.

    Raises:
        FrameError: it is none.
    """
    try:
        message = json.loads(text)
    except ValueError as error:
        raise FrameError(str(error)) from error
    if not isinstance(message, dict):
        raise FrameError("a message that is no object")
    return message


HEADER_SIZE = _HEADER.size


class Connection:
    """Frames over a pair of descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        """Readable between a frame and its answer only when the other side has gone."""
        self._writing = writing

    def send(self, message: dict[str, Any], *blobs: bytes | memoryview) -> None:
        """Sends a frame; the blobs become one."""
        text = json.dumps(message).encode()
        for part in (_HEADER.pack(len(text), sum(map(len, blobs))) + text, *blobs):
            left = memoryview(part)
            while left:
                left = left[os.write(self._writing, left) :]

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Waits for a frame.

        Raises:
            FrameError: the other side has gone.
        """
        text, blob = sizes(self._exactly(HEADER_SIZE))
        return parse(self._exactly(text)), self._exactly(blob)

    def receive_apart(self) -> tuple[dict[str, Any], Memory]:
        """Waits for a frame; its blob never touches the heap.

        Raises:
            FrameError: the other side has gone.
        """
        text, size = sizes(self._exactly(HEADER_SIZE))
        message, memory = parse(self._exactly(text)), Memory(size)
        left = memory.view
        while left:
            count = os.readv(self.reading, [left[:_CHUNK]])
            if not count:
                raise FrameError("the other side has gone")
            left = left[count:]
        return message, memory

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            chunk = os.read(self.reading, min(count - len(received), _CHUNK))
            if not chunk:
                raise FrameError("the other side has gone")
            received += chunk
        return bytes(received)
