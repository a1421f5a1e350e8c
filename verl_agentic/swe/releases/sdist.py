"""Files of a source distribution, read without unpacking it to disk."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from verl_agentic.base.errors import DataError

_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Release:
    """One release of a package."""

    name: str
    version: str
    files: dict[str, bytes]
    """Path below the top folder -> content of the regular files."""
    archive: str
    """File name of the source distribution."""
    sha256: str


def read_release(path: Path, *, name: str, version: str) -> Release:
    """Returns the files of a source distribution; links and special files are left out.

    Raises:
        DataError: it is no archive, is too large, or a path leaves it.
    """
    data = path.read_bytes()
    try:
        members = _read_zip(data) if path.suffix == ".zip" else _read_tar(data)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError) as cause:
        if isinstance(cause, DataError):
            raise
        raise DataError(f"the source distribution cannot be read, got {path}: {cause}; download it again") from cause
    files: dict[str, bytes] = {}
    for member, content in members.items():
        parts = member.removeprefix("./").split("/")
        if ".." in parts or member.startswith("/"):
            raise DataError(f"a path leaves the source distribution, got {member!r} in {path}; do not use this package")
        if len(parts) > 1:
            files["/".join(parts[1:])] = content
    digest = hashlib.sha256(data).hexdigest()
    return Release(name=name, version=version, files=files, archive=path.name, sha256=digest)


def _read_tar(data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.isfile() and (opened := archive.extractfile(member)) is not None:
                total += member.size
                _check_size(total)
                files[member.name] = opened.read()
    return files


def _read_zip(data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                total += member.file_size
                _check_size(total)
                files[member.filename] = archive.read(member)
    return files


def _check_size(total: int) -> None:
    if total > _MAX_BYTES:
        raise DataError(f"a source distribution may have {_MAX_BYTES} bytes, got more; leave the package out")
