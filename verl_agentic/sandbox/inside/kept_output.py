"""The output of a program: its first half and its last half, with a line in between if bytes were left out."""

from __future__ import annotations

import os

from .memory import Memory

_CHUNK = 65_536


class Output:
    """The output that was read from a pipe. The first `limit // 2` bytes and the newest others are kept."""

    def __init__(self) -> None:
        self._limit = -1
        self.begin(0)

    def begin(self, limit: int) -> None:
        """Starts to keep output, up to a limit."""
        self._num_read = self._oldest = 0
        self._note = b""
        if limit != self._limit:
            self._limit, self._head = limit, limit // 2
            # The last piece receives what comes beyond the limit; from there it goes into the ring behind the head.
            self._memory = Memory(limit + _CHUNK, is_inherited=False)

    @property
    def is_truncated(self) -> bool:
        """Whether bytes were left out."""
        return self._num_read > self._limit

    @property
    def size(self) -> int:
        """The number of bytes of `pieces`."""
        return sum(map(len, self.pieces))

    @property
    def pieces(self) -> list[bytes | memoryview]:
        """The kept output, outside of the heap."""
        view, oldest = self._memory.view, self._head + self._oldest
        if not self.is_truncated:
            return [view[: self._num_read], self._note]
        head = view[: self._head]
        line = marker(self._num_read - self._limit, after=bytes(head[-1:]))
        return [head, line, view[oldest : self._limit], view[self._head : oldest], self._note]

    def forget(self) -> None:
        """Drops the output."""
        self._memory.forget()

    def note(self, text: bytes) -> None:
        """Adds our own text at the end."""
        self._note = text

    def read(self, descriptor: int) -> bool:
        """Reads up to one piece; False if the pipe is closed. Raises BlockingIOError if the pipe is empty."""
        view, room = self._memory.view, self._limit - self._num_read
        start, end = (self._num_read, self._num_read + min(room, _CHUNK)) if room > 0 else (self._limit, len(view))
        count = os.readv(descriptor, [view[start:end]])
        self._num_read += count
        if room <= 0 and count:
            self._add_to_ring(view[start : start + count])
        return count > 0

    def add(self, data: bytes) -> None:
        """Adds a piece that was read elsewhere."""
        room = max(0, self._limit - self._num_read)
        first = data[:room]
        self._memory.view[self._num_read : self._num_read + len(first)] = first
        self._num_read += len(data)
        if len(data) > room:
            self._add_to_ring(memoryview(data)[room:])

    def drain(self, descriptor: int) -> None:
        """Reads the current content of the pipe only, because a writer may never stop."""
        for _ in range(32):
            try:
                if not self.read(descriptor):
                    return
            except BlockingIOError:
                return

    def _add_to_ring(self, data: memoryview) -> None:
        ring = self._memory.view[self._head : self._limit]
        data = data[max(0, len(data) - len(ring)) :]
        while len(data):
            count = min(len(data), len(ring) - self._oldest)
            ring[self._oldest : self._oldest + count] = data[:count]
            self._oldest = (self._oldest + count) % len(ring)
            data = data[count:]


def marker(num_bytes: int, *, after: bytes) -> bytes:
    """Returns the line between head and tail; `after` is the byte before it."""
    return b"%s... %d bytes left out ...\n" % (b"" if after in (b"", b"\n") else b"\n", num_bytes)


def head_and_tail(data: bytes, limit: int) -> bytes:
    """Returns `data`, or its first and last half with a line in between, `limit` bytes and the line."""
    if len(data) <= limit:
        return data
    head = data[: limit // 2]
    return head + marker(len(data) - limit, after=head[-1:]) + data[len(data) - (limit - limit // 2) :]
