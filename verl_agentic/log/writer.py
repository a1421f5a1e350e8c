"""Writer of a table of a run's log, in a background thread."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from verl_agentic.base.paths import make_private
from verl_agentic.log.arrow_batches import to_batch
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.schema import SCHEMAS
from verl_agentic.log.secrets import Secrets, own_secrets

logger = logging.getLogger(__name__)
FOLDER = "trajectories"
"""Subfolder of a run's folder."""
_MAX_WAITING = {"trajectories": 1024, "updates": 8}
"""Maximum number of waiting items: episodes, or whole batches of the trainer. Bounds the memory if the disk is slow."""
_MAX_PER_BATCH, _CLOSE_S = 256, 60.0
_GATHER_S = 0.5
"""Time that the first record of a batch waits for others, in seconds."""
_OLD_S = 600.0
"""A file without writes for longer than this is finished."""
Record = Mapping[str, Any]
Records = Callable[[], Sequence[Record]]
"""Makes records in the writer's thread; runs once."""


@functools.cache
def log_writer(table: str, options: LogOptions) -> LogWriter:
    """Returns this process's writer of a table; waiting records are written before the process ends."""
    writer = LogWriter(table, options)
    atexit.register(writer.close)
    return writer


class LogWriter:
    """The files of this process in a table of a run; a thread writes them.

    If the process dies, waiting records are lost. Errors (a full disk, a record that does not match the schema) are
    logged and never raised to the caller.
    """

    def __init__(self, table: str, options: LogOptions, *, secrets: Secrets | None = None) -> None:
        """Opens nothing yet; every process has its own files."""
        assert options.dir is not None
        self._folder, self._table, self._options = Path(options.dir) / FOLDER, table, options
        self._schema = SCHEMAS[table]
        self._name = f"{table}-{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._secrets = own_secrets() if secrets is None else secrets
        self._waiting: queue.Queue[Records | None] = queue.Queue(_MAX_WAITING[table])
        self._most = min(_MAX_PER_BATCH, _MAX_WAITING[table])
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._path = self._folder
        self._file: Any = None
        self._stream: Any = None
        self._number = 0
        self.num_lost = 0
        """Number of lost records."""

    def append(self, make: Records) -> None:
        """Queues a function that makes records; returns at once. If too many wait, the records are lost."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name=f"{self._table} log", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(make)
        except queue.Full:
            self._count_lost(1, "the disk is too slow")

    def write(self, records: Sequence[Record]) -> None:
        """Writes records at once; for a caller that never uses `append`.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self._write_batch(to_batch([self._secrets.removed(record) for record in records], self._schema))

    def close(self) -> None:
        """Waits until all records are written, at most a minute."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            self._close_file()
        else:
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=_CLOSE_S)
            thread.join(_CLOSE_S)

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            makes = [self._waiting.get()]
            ends = time.monotonic() + _GATHER_S
            while len(makes) < self._most and makes[-1] is not None:
                try:
                    makes.append(self._waiting.get(timeout=max(0.0, ends - time.monotonic())))
                except queue.Empty:
                    break
            is_open = makes[-1] is not None
            self._write_records([make for make in makes if make is not None])
        self._close_file()

    def _write_records(self, makes: Sequence[Records]) -> None:
        records: list[Record] = []
        for make in makes:
            try:
                records += [self._secrets.removed(record) for record in make()]
            except Exception as cause:
                self._count_lost(1, f"{type(cause).__name__}: {cause}")
        if not records:
            return
        try:
            self._write_batch(to_batch(records, self._schema))
        except Exception as cause:
            if len(records) == 1 or isinstance(cause, OSError):
                self._count_lost(len(records), f"{type(cause).__name__}: {cause}")
            else:  # a record that does not match must not lose the others
                for record in records:
                    self._write_records([lambda record=record: [record]])

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        end = 0
        try:
            if self._file is not None and not self._path.exists():
                self._close_file()  # another process has made room
            file = self._open_file() if self._file is None else self._file
            end = file.tell()
            self._stream.write_batch(batch)
        except OSError:
            self._abandon_file(end)
            raise
        if file.tell() >= self._options.file_mb * 2**20:
            self._close_file()
            with contextlib.suppress(OSError):  # others make room, too
                self._remove_oldest()

    def _open_file(self) -> Any:
        """Opens the next file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path = self._folder / f"{self._name}-{self._number:05d}.arrows"
        self._number += 1
        make_private(self._path)
        self._file = pa.OSFile(str(self._path), "wb")
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))
        self._stream = pa.ipc.new_stream(self._file, self._schema, options=options)
        return self._file

    def _abandon_file(self, end: int) -> None:
        """Abandons the file after its last complete batch."""
        self._stream = None
        with contextlib.suppress(OSError):  # closing writes the rest
            if self._file is not None:
                self._file.close()
        self._file = None
        try:
            if end:
                os.truncate(self._path, end)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as cause:
            logger.warning("%s ends with a broken record: %s", self._path, cause)

    def _close_file(self) -> None:
        if self._file is not None:
            try:
                self._stream.close()
                self._file.close()
            except OSError as cause:
                logger.warning("%s was not closed: %s", self._path, cause)
            self._file = self._stream = None

    def _remove_oldest(self) -> None:
        if self._options.total_gb is None:
            return
        entries = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._list_files())
        total = sum(size for _, size, _ in entries)
        for modified_at, size, path in entries:
            is_own = path.name.startswith(self._name)
            if total <= self._options.total_gb * 2**30 or not (is_own or modified_at < time.time() - _OLD_S):
                break
            path.unlink(missing_ok=True)
            total -= size

    def _list_files(self) -> list[Path]:
        return list(self._folder.glob(f"{self._table}-*.arrows"))

    def _count_lost(self, count: int, why: str) -> None:
        self.num_lost += count
        # The first loss, then less and less often.
        if (self.num_lost & (self.num_lost - 1)) == 0:
            logger.warning("%d records of %s are lost so far: %s", self.num_lost, self._folder / self._name, why)
