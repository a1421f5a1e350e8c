"""The wire format of trainer, zygote and box: a message and a blob, each with its length in front.

Requests use `marshal`, because reading them touches few of the pages that a program shares with its box. Answers are
JSON, because `marshal` trusts its input, and code may control the sender.
"""

from __future__ import annotations

import json
import marshal
import os
import select
import struct
from typing import Any

from .memory import Memory

_HEADER = struct.Struct("<II")
_INBOX = 1 << 16
_MARSHAL_VERSION = 2  # the newest version without references, which every Python can read
MAX_TEXT, MAX_BLOB = 1 << 24, 1 << 30


class FrameError(Exception):
    """The input is not a frame, or the other side has gone."""


def marshalled(message: dict[str, Any]) -> bytes:
    """Returns a message for a box. Goes through JSON, which converts subclasses such as those of `str`."""
    return marshal.dumps(json.loads(json.dumps(message)), _MARSHAL_VERSION)


def request(message: dict[str, Any], blob: bytes = b"") -> bytes:
    """Returns the frame of a request."""
    text = marshalled(message)
    return _HEADER.pack(len(text), len(blob)) + text + blob


def answer(message: dict[str, Any], blob_size: int = 0) -> bytes:
    """Returns the frame of an answer, without its blob."""
    text = json.dumps(message).encode()
    return _HEADER.pack(len(text), blob_size) + text


def sizes(header: bytes | memoryview) -> tuple[int, int]:
    """Returns the lengths of text and blob. Raises FrameError if a length is larger than any valid frame's."""
    text, blob = _HEADER.unpack_from(header)
    if text > MAX_TEXT or blob > MAX_BLOB:
        raise FrameError(f"a frame of {text} and {blob} bytes")
    return text, blob


def parse(text: bytes) -> dict[str, Any]:
    """Returns the message of an answer. Raises FrameError if it is invalid."""
    try:
        message = json.loads(text)
    except ValueError as error:
        raise FrameError(str(error)) from error
    if not isinstance(message, dict):
        raise FrameError("a message that is no object")
    return message


HEADER_SIZE = _HEADER.size


class Connection:
    """The inner end of the connection, with one descriptor for requests and one for answers."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        """Between a request and its answer, it is only readable if the other side has gone."""
        self._writing = writing
        self._memory = self._inbox = Memory(_INBOX)

    def is_ready(self, *, within_s: float) -> bool:
        """Returns whether a request or the end comes within a time."""
        return is_readable(self.reading, within_s)

    def send(self, message: dict[str, Any], *blobs: bytes | memoryview) -> None:
        """Sends an answer with the joined blobs."""
        parts = [memoryview(part) for part in (answer(message, sum(map(len, blobs))), *blobs) if part]
        while parts:
            count = os.writev(self._writing, parts)
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if count:
                parts[0] = parts[0][count:]

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """Waits for a request; its blob exists until `forget`. Raises FrameError if the other side has gone."""
        view, needed = self._inbox.view, HEADER_SIZE
        count = text = 0
        while count < needed:
            got = os.readv(self.reading, [view[count:]])
            if not got:
                raise FrameError("the other side has gone")
            count += got
            if not text and count >= HEADER_SIZE:
                text, blob = sizes(view)
                needed += text + blob
                if needed > _INBOX:
                    self._memory = Memory(needed)
                    self._memory.view[:count] = view[:count]
                    self._inbox.forget()
                    view = self._memory.view
        end = HEADER_SIZE + text
        return marshal.loads(view[HEADER_SIZE:end]), view[end:needed]

    def forget(self) -> None:
        """Drops the request."""
        self._memory.forget()
        self._memory = self._inbox


def is_readable(descriptor: int, within_s: float) -> bool:
    """Waits until there is something to read."""
    poll = select.poll()  # not select(), which is limited to descriptors below 1024
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * within_s))
