"""Wheels for requirements: pip chooses them in a sandbox, and this process downloads and unpacks them.

The sandbox has no network, no credentials and no environment of the host. pip sees one index, whose pages this process
makes: they have wheels only, and their metadata without requirements that name a URL or a file.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import email
import html
import inspect
import json
import logging
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from verl_agentic.base.errors import DataError
from verl_agentic.sandbox.interface import Backend, Limits, SandboxSession, Tree
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.swe.releases import sandboxed_pip
from verl_agentic.swe.releases.package_names import parse_named
from verl_agentic.swe.releases.pip import IndexFile, PipIndex, pip_folder

_logger = logging.getLogger(__name__)
_INDEX = "https://index.invalid/"
_PAGES, _FILES = f"{_INDEX}simple/", f"{_INDEX}files/"
_OPTIONS = (
    "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--index-url", _PAGES, "--isolated",
    "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "0", "--quiet",
    "--report", "report",
)  # fmt: skip
_LIMITS = Limits(
    wall_s=120.0, cpu_s=600, memory_mb=2048, processes=32, open_files=256, file_mb=512, output_bytes=200_000
)
_MAX_REQUESTS = 2_000
_MAX_MESSAGE_CHARS = 300
_MAX_SITE_BYTES = 1 << 30


@dataclass(kw_only=True)
class WheelIndex:
    """The index that pip sees: wheels of the real indexes, and their metadata."""

    index: PipIndex
    folder: Path
    """Takes downloaded wheels."""
    dropped: set[str] = field(default_factory=set)
    """Requirements of wheels that name a URL or a file, and were left out."""
    _wheels: dict[str, IndexFile] = field(default_factory=dict)

    def answer(self, url: str) -> bytes | None:
        """Returns the answer to a request of pip; None for anything but a page, a wheel or its metadata.

        Raises:
            DataError: an index cannot be reached.
        """
        if url.startswith(_PAGES):
            return self._render_page(unquote(url.removeprefix(_PAGES)).strip("/"))
        name = unquote(url.removeprefix(_FILES)) if url.startswith(_FILES) else ""
        if (file := self._wheels.get(name.removesuffix(".metadata"))) is None:
            return None
        return self._render_metadata(file) if name.endswith(".metadata") else self._fetch_wheel(file).read_bytes()

    def download(self, url: str) -> Path:
        """Returns the path of a wheel that pip has chosen. Raises DataError if it is not of this index."""
        file = self._wheels.get(unquote(url.partition("#")[0].removeprefix(_FILES)))
        if file is None or not url.startswith(_FILES):
            raise DataError(f"pip may choose wheels of the index only, got {url[:200]!r}; leave the package out")
        return self._fetch_wheel(file)

    def _render_page(self, name: str) -> bytes:
        files = [file for file in self.index.files(name) if file.is_wheel] if parse_named(name) is not None else []
        for file in files:
            self._wheels.setdefault(file.name, file)
        return "\n".join(map(_render_link, files)).encode()

    def _render_metadata(self, file: IndexFile) -> bytes:
        text = self.index.metadata(file)
        if text is None:
            text = _metadata_in(self._fetch_wheel(file))
        message = email.message_from_bytes(text)
        needed = list(map(str, message.get_all("Requires-Dist", [])))
        del message["Requires-Dist"]
        for requirement in needed:
            if parse_named(requirement) is None:
                self.dropped.add(f"{requirement} (of {file.name})")
            else:
                message["Requires-Dist"] = requirement
        return message.as_bytes()

    def _fetch_wheel(self, file: IndexFile) -> Path:
        return self.index.download(file, into=self.folder)


def install_wheels(index: PipIndex, requirements: Sequence[str], *, into: Path, backend: str) -> set[str]:
    """Installs requirements from wheels; returns requirements of wheels that were dropped, as they name no package.

    Args:
        index: has the wheels.
        requirements: names with extras and versions; others are refused.
        into: an empty folder.
        backend: name of the sandbox backend that pip runs in.

    Raises:
        DataError: a requirement has no wheel, names a URL or a file, or the index cannot be reached.
        SandboxError: the sandbox failed.
    """
    if bad := [text for text in requirements if parse_named(text) is None]:
        raise DataError(f"a requirement is a name with versions, got {bad}; leave out URLs, paths and options")
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".wheels-") as folder:
        wheels = WheelIndex(index=index, folder=Path(folder))
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            paths = thread.submit(asyncio.run, _choose_in(backend, wheels, requirements)).result()
        for path in paths:
            unpack_wheel(path, into)
    if wheels.dropped:
        _logger.warning("dropped requirements of wheels, as they name no package: %s", sorted(wheels.dropped))
    return wheels.dropped


async def _choose_in(name: str, index: WheelIndex, requirements: Sequence[str]) -> list[Path]:
    backend = make_backend(name)
    await backend.start()
    try:
        return await choose_wheels(backend, index, requirements)
    finally:
        await backend.close()


async def choose_wheels(backend: Backend, index: WheelIndex, requirements: Sequence[str]) -> list[Path]:
    """Returns downloaded wheels that meet requirements, as pip chooses them in a sandbox of a started backend."""
    sandbox = await backend.create(trees=[Tree(source=pip_folder(), at="packages/pip", read_only=True)])
    try:
        session = await sandbox.open_session("python", limits=_LIMITS)
        arguments = [*_OPTIONS, "--", *requirements]
        message = await _ask_pip(
            session, f"{inspect.getsource(sandboxed_pip)}\nbegin({arguments!r}, packages='packages')\n"
        )
        for _ in range(_MAX_REQUESTS):
            if "url" not in message:
                break
            answer = index.answer(str(message["url"]))
            if answer is not None:
                await sandbox.put_tree({"answer": answer})
            message = await _ask_pip(session, f"resume({answer is not None})")
    finally:
        await sandbox.close()
    urls = message.get("report")
    if not isinstance(urls, list):
        errors = [line for line in message["stderr"].splitlines() if line.startswith("ERROR:")]
        reason = errors[-1] if errors and errors[-1] != "ERROR: Exception:" else message["stderr"][-_MAX_MESSAGE_CHARS:]
        raise DataError(
            f"pip cannot get {' '.join(requirements)}, got {reason[:_MAX_MESSAGE_CHARS]!r}; check the names, the "
            "versions and the index"
        )
    return [index.download(str(url)) for url in urls]


async def _ask_pip(session: SandboxSession, text: str) -> dict[str, Any]:
    """Returns what pip says next: a URL, or the result."""
    result = await session.run(text, wall_s=_LIMITS.wall_s)
    try:
        message = json.loads(result.stdout.strip().rpartition("\n")[2])
    except ValueError:
        message = None
    return {**(message if isinstance(message, dict) else {}), "stderr": result.stderr}


def unpack_wheel(path: Path, into: Path) -> None:
    """Writes the modules and metadata of a wheel; no scripts. No code of the wheel runs.

    Raises:
        DataError: it is no wheel, is too large, or a path leaves the folder.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if sum(member.file_size for member in members) > _MAX_SITE_BYTES:
                raise DataError(f"a wheel may have {_MAX_SITE_BYTES} bytes, got more in {path.name}; leave it out")
            for member in members:
                if place := _split_path(member.filename):
                    target = into.joinpath(*place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(member))
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as cause:
        if isinstance(cause, DataError):
            raise
        raise DataError(f"the wheel cannot be unpacked, got {path.name}: {cause}; leave it out") from cause


def _split_path(name: str) -> list[str]:
    """Returns the parts of a file's path in the folder; empty for scripts and data."""
    parts = name.split("/")
    if parts[0].endswith(".data"):
        parts = parts[2:] if parts[1] in ("purelib", "platlib") else []
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise DataError(f"a path of a wheel must lie below its folder, got {name!r}; leave the package out")
    return parts


def _metadata_in(path: Path) -> bytes:
    """Returns the metadata in a wheel. Raises DataError if there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                parts = member.filename.split("/")
                if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "METADATA":
                    return archive.read(member)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as cause:
        raise DataError(f"the wheel cannot be read, got {path.name}: {cause}; leave it out") from cause
    raise DataError(f"the wheel has no metadata, got {path.name}; leave it out")


def _render_link(file: IndexFile) -> str:
    attributes = f' data-requires-python="{html.escape(file.requires_python)}"' if file.requires_python else ""
    attributes += ' data-yanked=""' if file.is_yanked else ""
    return f'<a href="{_FILES}{file.name}" data-core-metadata="true" data-dist-info-metadata="true"{attributes}>_</a>'
