"""A journal of records that survives interruptions, so that finished work is not repeated."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.paths import make_private
from verl_agentic.log.files.record_files import read_json_lines

logger = logging.getLogger(__name__)


class Journal:
    """Records by key, in a file of JSON lines; the last record of a key counts.

    One process has a journal at a time: until `close`, or until the process ends in whatever way.
    """

    def __init__(self, path: Path) -> None:
        """Locks and reads the file; removes an incomplete last line.

        Raises:
            ConfigError: another process has it.
            DataError: another line is not a record.
        """
        self.path = path
        self._lock = lock_for(self, path)
        self.records: dict[str, dict[str, Any]] = {}
        self._file: IO[str] | None = None
        if path.is_file():
            _drop_cut_line(path)
            for number, record in read_json_lines(path):
                if not isinstance(record.get("key"), str):
                    raise DataError(
                        f"{path}:{number} has no key; it was not written by an evaluation: use another folder"
                    )
                self.records[record["key"]] = record

    def append(self, record: dict[str, Any]) -> None:
        """Adds a record and writes it to disk."""
        if self._file is None:
            if not self._lock.alive:
                self._lock = lock_for(self, self.path)
            make_private(self.path)
            self._file = self.path.open("a", encoding="utf-8")
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        self.records[record["key"]] = record

    async def kept(self, key: str, make: Callable[[], Awaitable[Mapping[str, Any]]]) -> dict[str, Any]:
        """Returns the record of a key; makes and adds it if there is none."""
        if key not in self.records:
            self.append({"key": key, **await make()})
        return self.records[key]

    def close(self) -> None:
        """Closes the file and leaves it to other processes."""
        self._lock()
        if self._file is not None:
            self._file.close()
            self._file = None


def lock_for(owner: object, path: Path) -> weakref.finalize[..., object]:
    """Locks a file or folder for an object, until the returned function is called or the object is gone.

    Raises:
        ConfigError: another process has locked it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"another process is writing {path}, and this one would do the same work; wait for its end, or use "
            "another folder (--out)"
        ) from None
    except OSError:
        logger.warning("%s cannot be locked on its file system: start no second process on it", path)
    _descriptors.add(descriptor)
    return weakref.finalize(owner, _unlock_file, descriptor)


def _unlock_file(descriptor: int) -> None:
    if descriptor in _descriptors:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _unlock_in_child() -> None:
    """Closes the descriptors in a forked process: they would hold the locks after the end of its parent."""
    for descriptor in [*_descriptors]:
        _unlock_file(descriptor)


_descriptors: set[int] = set()
os.register_at_fork(after_in_child=_unlock_in_child)


def fingerprint(row: EnvRow) -> str:
    """Returns a hash of a row's content."""
    extra = {key: value for key, value in row.extra.items() if key != "index"}
    content = [[m.to_dict() for m in row.prompt], row.ground_truth, row.data_source, extra]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def keep_settings(path: Path, settings: Mapping[str, Any], *, has_begun: bool) -> None:
    """Writes the settings of a new run, or checks that a resumed run has the same ones.

    Raises:
        ConfigError: they differ.
    """
    settings = json.loads(json.dumps(settings))
    if not has_begun or not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise ConfigError(f"{path} is not JSON, got {cause}; use another --out") from cause
    pairs = {key: (before.get(key), settings.get(key)) for key in {**before, **settings}}
    changed = [f"{key} was {old!r} and is {new!r}" for key, (old, new) in pairs.items() if old != new]
    if changed:
        differences = "; ".join(changed)
        raise ConfigError(f"{path.parent} holds another evaluation, got {differences}; use another --out")


def _drop_cut_line(path: Path) -> None:
    with path.open("rb+") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)
