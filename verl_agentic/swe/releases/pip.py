"""A client of package indexes. It reads pages and downloads files; it runs neither pip nor code of packages.

Indexes and their credentials are those of pip's configuration. `wheels.py` runs pip itself, in a sandbox that has
neither.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import html.parser
import http.client
import importlib.util
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from verl_agentic.base.errors import ConfigError, DataError, MissingDependencyError
from verl_agentic.swe.releases.package_names import normal_name

_PYPI = "https://pypi.org/simple"
_SDIST = re.compile(r"\.(tar\.gz|tar\.bz2|zip)$")
_FILE_NAME = re.compile(r"\w[\w.+!-]*")
_TIMEOUT_S = 60
_MAX_PAGE_BYTES, _MAX_FILE_BYTES = 64 * 2**20, 512 * 2**20


@dataclass(frozen=True, kw_only=True)
class IndexFile:
    """A file that an index offers."""

    name: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    is_yanked: bool = False
    has_metadata: bool = False
    """Whether the index also has the metadata alone (PEP 658)."""

    @property
    def package(self) -> str:
        """Name of the package, in normal form."""
        stem = self.name.split("-")[0] if self.is_wheel else _SDIST.sub("", self.name).rpartition("-")[0]
        return normal_name(stem)

    @property
    def is_wheel(self) -> bool:
        """True for a wheel."""
        return self.name.endswith(".whl")

    @property
    def sdist_version(self) -> Version | None:
        """Version of a source distribution; None for another file, or if it is malformed."""
        if _SDIST.search(self.name):
            try:
                return Version(_SDIST.sub("", self.name).rpartition("-")[2])
            except InvalidVersion:
                pass
        return None

    def fits_python(self) -> bool:
        """Returns whether the file is for the Python of this process."""
        try:
            return SpecifierSet(self.requires_python).contains(".".join(map(str, sys.version_info[:3])))
        except InvalidSpecifier:
            return True


@dataclass(frozen=True, kw_only=True)
class PipIndex:
    """Package indexes; by default those of pip's configuration."""

    index_url: str | None = None
    """URL of a package index, instead of the configured one."""
    find_links: Path | None = None
    """A folder of source distributions and wheels. Source distributions are taken from this folder only."""
    _files: dict[str, list[IndexFile]] = field(default_factory=dict, init=False, repr=False)
    _failures: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def files(self, package: str) -> list[IndexFile]:
        """Returns the files of a package, of the folder and of all indexes.

        Raises:
            DataError: no release was found, and an index cannot be reached.
        """
        name = normal_name(package)
        if name not in self._files:
            index_files = list(self._folder_files(name))
            for url in self._list_sources():
                index_files += self._read_page(
                    url if url.endswith(_LINKS) else f"{url.rstrip('/')}/{name}/", source=url
                )
            self._files[name] = [file for file in index_files if file.package == name]
            if not self._files[name] and self._failures:
                failures = dict(self._failures)
                self._failures.clear()  # tried again next time
                del self._files[name]
                raise DataError(f"the index cannot be reached for {name}, got {failures}; check the index")
        return self._files[name]

    def versions(self, name: str) -> list[str]:
        """Returns the final versions that have a source distribution for this Python, newest first.

        Raises:
            DataError: the index has none, or cannot be reached.
        """
        versions = {version for version in self._find_sdists(name) if not version.is_prerelease}
        if not versions:
            place = self.find_links or "the index"
            raise DataError(f"there is no source distribution of {name}, got {place}; check the name")
        return [str(version) for version in sorted(versions, reverse=True)]

    def download_sdist(self, name: str, version: str, *, into: Path) -> Path:
        """Downloads one source distribution and returns its path; an existing file is used again.

        Raises:
            DataError: the file does not exist, or it cannot be downloaded.
        """
        into.mkdir(parents=True, exist_ok=True)
        if existing := sorted(path for path in into.iterdir() if _SDIST.search(path.name)):
            return existing[0]
        try:
            file = self._find_sdists(name).get(Version(version))
        except InvalidVersion:
            file = None
        if file is None:
            raise DataError(f"there is no source distribution of {name} {version}; leave this version out")
        return self.download(file, into=into)

    def download(self, file: IndexFile, *, into: Path) -> Path:
        """Downloads a file, checks its hash, and returns its path; an existing file is used again.

        Raises:
            DataError: it cannot be downloaded, or has another content than the index says.
        """
        path = into / file.name
        if not path.is_file():
            data = self._read_url(file.url, max_bytes=_MAX_FILE_BYTES)
            if file.sha256 and hashlib.sha256(data).hexdigest() != file.sha256:
                raise DataError(f"the file has not the hash of the index, got {file.url}; try again later")
            partial = path.with_name(f"{file.name}.partial")
            partial.write_bytes(data)
            partial.replace(path)
        return path

    def metadata(self, file: IndexFile) -> bytes | None:
        """Returns the metadata of a wheel, or None if the index does not have it alone. Raises DataError."""
        return self._read_url(f"{file.url}.metadata", max_bytes=_MAX_PAGE_BYTES) if file.has_metadata else None

    def _find_sdists(self, name: str) -> Mapping[Version, IndexFile]:
        """Returns version -> source distribution, without yanked ones."""
        name = normal_name(name)
        files = self.files(name) if self.find_links is None else self._folder_files(name)
        usable = [file for file in files if file.package == name and not file.is_yanked and file.fits_python()]
        return {version: file for file in reversed(usable) if (version := file.sdist_version) is not None}

    def _folder_files(self, name: str) -> Iterator[IndexFile]:
        if self.find_links is not None:
            for file in _files_in(self.find_links.resolve()):
                if file.package == name:
                    yield file

    def _list_sources(self) -> list[str]:
        """Returns URLs of indexes, and, with `_LINKS` at the end, of pages with links."""
        configured = _pip_settings()
        links = [_as_url(place) + _LINKS for place in configured.get("find-links", "").split()]
        index = self.index_url or configured.get("index-url", _PYPI)
        return [*links, index, *configured.get("extra-index-url", "").split()]

    def _read_page(self, url: str, *, source: str) -> list[IndexFile]:
        """Returns the files of a page; none if it does not exist or its server cannot be reached."""
        url = url.removesuffix(_LINKS)
        if source in self._failures:
            return []
        try:
            parts = urlsplit(url)
            folder = Path(unquote(parts.path))
            if parts.scheme == "file" and folder.is_dir() and not (folder / "index.html").is_file():
                return list(_files_in(folder))
            text = self._read_url(url, max_bytes=_MAX_PAGE_BYTES).decode(errors="replace")
        except _NotThereError:
            return []
        except DataError as cause:
            self._failures[source] = str(cause)
            return []
        reader = _PageReader(url)
        reader.feed(text)
        return reader.files

    def _read_url(self, url: str, *, max_bytes: int) -> bytes:
        """Returns a page or a file.

        Raises:
            _NotThereError: it does not exist.
            DataError: it cannot be read.
        """
        public_url = _without_secret(url)
        try:
            if urlsplit(url).scheme == "file":
                path = Path(unquote(urlsplit(url).path))
                return (path / "index.html" if path.is_dir() else path).read_bytes()
            with _make_opener().open(self._make_request(url), timeout=_TIMEOUT_S) as answer:
                data = answer.read(max_bytes + 1)
        except (FileNotFoundError, NotADirectoryError) as cause:
            raise _NotThereError(f"no such file, got {public_url}; check the index") from cause
        except (OSError, ValueError, http.client.HTTPException) as cause:
            kind = _NotThereError if getattr(cause, "code", None) in (403, 404, 410) else DataError
            raise kind(f"the index gave no answer for {public_url}, got {cause}; try again later") from cause
        if len(data) > max_bytes:
            raise DataError(f"a file of an index may have {max_bytes} bytes, got more at {public_url}; leave it out")
        return data

    def _make_request(self, url: str) -> urllib.request.Request:
        """Returns a request; it has the credentials of the index on the same server."""
        parts = urlsplit(url)
        servers = {
            split.netloc.rpartition("@")[2]: split for split in map(urlsplit, self._list_sources()) if split.username
        }
        login = parts if parts.username else servers.get(parts.netloc)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(bare, headers={"Accept": "text/html,*/*;q=0.1"})
        if login is not None and login.username:
            pair = f"{unquote(login.username)}:{unquote(login.password or '')}"
            # Not sent to the target of a redirection.
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        return request


_LINKS = "#links"
"""Marks URLs of pages that list the files of many packages."""


class _NotThereError(DataError):
    """A page or a file that does not exist."""


class _PageReader(html.parser.HTMLParser):
    """Reads the links of a page (PEP 503). A page of a server cannot link to files of this machine."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._schemes = {"file"} if urlsplit(url).scheme == "file" else {"http", "https"}
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base" and attributes.get("href"):
            self._url = urljoin(self._url, attributes["href"])
        if tag != "a" or not attributes.get("href"):
            return
        url, fragment = urldefrag(urljoin(self._url, attributes["href"]))
        name = unquote(url.rpartition("/")[2])
        is_allowed = urlsplit(url).scheme in self._schemes
        if is_allowed and _FILE_NAME.fullmatch(name) and name.endswith((".whl", ".zip", ".tar.gz", ".tar.bz2")):
            self.files.append(
                IndexFile(
                    name=name,
                    url=url,
                    sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "",
                    requires_python=attributes.get("data-requires-python") or "",
                    is_yanked="data-yanked" in attributes,
                    has_metadata=bool(
                        attributes.get("data-core-metadata") or attributes.get("data-dist-info-metadata")
                    ),
                )
            )


def parse_requirement(text: str) -> tuple[str, str]:
    """Returns name and version of `NAME==VERSION`. Raises ConfigError for another form."""
    name, separator, version = text.partition("==")
    if not separator or not name or not version:
        raise ConfigError(f"a release is written NAME==VERSION, got {text!r}; for example parse==1.22.4")
    return name.strip(), version.strip()


def pip_folder() -> Path:
    """Returns the folder of the installed pip. Raises MissingDependencyError without it."""
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise MissingDependencyError("pip is not installed here; run python -m ensurepip")
    return Path(spec.origin).parent


@functools.cache
def _pip_settings() -> dict[str, str]:
    """Returns pip's settings for this user; empty without pip. Only `pip config` runs outside of a sandbox."""
    command = (sys.executable, "-I", "-m", "pip", "config", "list")
    text = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False).stdout
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # later ones win
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", text, re.M):
            settings[name] = str(ast.literal_eval(value))
    return settings


@functools.cache
def _make_opener() -> urllib.request.OpenerDirector:
    """Returns an opener with the proxies and certificates of this user."""
    import ssl

    context = ssl.create_default_context(cafile=_pip_settings().get("cert"))
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))


def _files_in(folder: Path) -> Iterator[IndexFile]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.name.endswith(".whl") or _SDIST.search(path.name)):
            yield IndexFile(name=path.name, url=path.as_uri())


def _as_url(place: str) -> str:
    return place if "://" in place else Path(place).resolve().as_uri()


def _without_secret(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
