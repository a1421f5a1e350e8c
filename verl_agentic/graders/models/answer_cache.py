"""A bounded cache of verdicts on disk, shared by all processes of a machine."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError

_SHARDS = 256
_LEAST_MB = 16


def key_of(content: Any) -> str:
    """Returns the cache key of JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class VerdictCache:
    """A folder with one small file per verdict, in 256 shards of bounded size.

    Files are written atomically by renaming. A shard is locked for writes, not for reads. The least recently used files
    are removed first. Unreadable files are ignored.
    """

    def __init__(self, folder: Path, *, max_mb: float = 256.0) -> None:
        """Makes a cache; the folder is created on the first write.

        Args:
            folder: on a file system with locks (`flock`).
            max_mb: maximum total size, in MiB; at least 16.

        Raises:
            ConfigError: `max_mb` is too small.
        """
        if not max_mb >= _LEAST_MB:
            raise ConfigError(f"a cache of verdicts needs at least {_LEAST_MB} MiB, got {max_mb}; raise cache_mb")
        self._folder = folder
        self._shard_bytes = int(max_mb * 2**20) // _SHARDS

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns the value of a key of `key_of`, or None."""
        path = self._get_path(key)
        try:
            value = json.loads(path.read_bytes())
            os.utime(path)
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Stores a value, unless it is larger than a shard. Raises OSError if the disk is full or read-only."""
        data = json.dumps(value).encode()
        if len(data) > self._shard_bytes:
            return
        path = self._get_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(path.parent / ".lock"):
            self._make_room(path.parent, len(data))
            # One name is enough, because writers of this shard hold its lock.
            unfinished = path.parent / ".unfinished"
            unfinished.write_bytes(data)
            unfinished.replace(path)

    def _get_path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"

    def _make_room(self, shard: Path, num_bytes: int) -> None:
        entries = [
            (s.st_mtime_ns, s.st_size, path) for path in shard.glob("*.json") if (s := _try_stat(path)) is not None
        ]
        excess = sum(size for _, size, _ in entries) + num_bytes - self._shard_bytes
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def _try_stat(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat()
    return None


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
