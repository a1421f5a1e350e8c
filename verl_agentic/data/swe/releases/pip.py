"""pip as a client of package indexes: versions, source distributions and wheels. No third-party code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from verl_agentic.data.swe.releases import metadata_stub
from verl_agentic.errors import ConfigError, DataError, MissingDependencyError

_RUN_PIP = "import runpy, sys; sys.executable = sys.argv.pop(1); runpy.run_module('pip', run_name='__main__')"
_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class PipIndex:
    """Where pip finds packages; by default what its own configuration says."""

    index_url: str | None = None
    """URL of a package index, instead of PyPI."""
    find_links: Path | None = None
    """A folder of source distributions and wheels; used instead of all indexes."""

    def versions(self, name: str) -> list[str]:
        """Returns the final versions that have a source distribution, newest first.

        Raises:
            DataError: the index has none, or cannot be reached.
        """
        if self.find_links is not None:
            return _local_versions(self.find_links, name)
        text = self._pip("index", "versions", name, "--no-binary", ":all:", what=f"the versions of {name}")
        found = re.search(r"^Available versions: (.*)$", text, re.M)
        if found is None:
            raise DataError(f"pip lists no versions of {name}, got {text[-200:]!r}; use a newer pip")
        return [version.strip() for version in found[1].split(",")]

    def download_sdist(self, name: str, version: str, *, into: Path) -> Path:
        """Downloads one source distribution and returns its path; an existing file is used again.

        Raises:
            DataError: pip fails, or the release has no PKG-INFO.
        """
        into = into.resolve()  # pip calls the stub from another folder
        into.mkdir(parents=True, exist_ok=True)
        if not (found := _archives(into)):
            with tempfile.TemporaryDirectory(dir=into.parent) as folder:
                stub = _write_stub(Path(folder))
                options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", folder)
                self._pip("download", *options, f"{name}=={version}", what=f"{name} {version}", interpreter=stub)
                for path in _archives(Path(folder)):
                    path.replace(into / path.name)
            found = _archives(into)
        if not found:
            raise DataError(f"pip downloaded no source distribution of {name} {version}, got {into}; leave it out")
        return found[0]

    def install_wheels(self, requirements: Sequence[str], *, into: Path) -> None:
        """Installs requirements from wheels only, so that none of their code runs. Raises DataError without a wheel."""
        options = ("--target", str(into), "--only-binary", ":all:", "--no-compile")
        self._pip("install", *options, *requirements, what=" ".join(requirements))

    def _pip(self, command: str, *arguments: str, what: str, interpreter: str = sys.executable) -> str:
        where: tuple[str, ...] = ()
        if self.find_links is not None:
            where = ("--find-links", str(self.find_links.resolve()))
            where += ("--no-index",) if command != "install" else ()
        if self.index_url is not None:
            where += ("--index-url", self.index_url)
        given = (sys.executable, "-c", _RUN_PIP, interpreter, command, *where, *arguments)
        env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USE_PEP517": "1", "PIP_NO_INPUT": "1"}
        try:
            ended = subprocess.run(given, capture_output=True, text=True, timeout=_TIMEOUT_S, env=env, check=False)
        except subprocess.TimeoutExpired as cause:
            raise DataError(f"pip gave no answer in {_TIMEOUT_S} s for {what}; try again later") from cause
        if ended.returncode:
            if "No module named pip" in ended.stderr:
                raise MissingDependencyError("pip is not installed here; run python -m ensurepip")
            lines = [line for line in ended.stderr.splitlines() if line.startswith("ERROR:")] or [ended.stderr[-300:]]
            raise DataError(
                f"pip cannot get {what}, got {lines[-1][:300]!r}; check the name, the version and the index"
            )
        return ended.stdout


def parse_requirement(text: str) -> tuple[str, str]:
    """Returns name and version of `NAME==VERSION`. Raises ConfigError for another form."""
    name, separator, version = text.partition("==")
    if not separator or not name or not version:
        raise ConfigError(f"a release is written NAME==VERSION, got {text!r}; for example parse==1.22.4")
    return name.strip(), version.strip()


def normal_name(name: str) -> str:
    """Returns a package's name in normal form: lower case, `-` for runs of `-_.`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _archives(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".tar.gz", ".zip", ".tar.bz2")))


def _local_versions(folder: Path, name: str) -> list[str]:
    versions: dict[Version, str] = {}
    for path in _archives(folder):
        stem, _, version = re.sub(r"\.(tar\.gz|tar\.bz2|zip)$", "", path.name).rpartition("-")
        if normal_name(stem) == normal_name(name):
            try:
                versions[Version(version)] = version
            except InvalidVersion:
                continue
    if not versions:
        raise DataError(f"the folder has no source distribution of {name}, got {folder}; check the name")
    return [versions[version] for version in sorted(versions, reverse=True) if not version.is_prerelease]


def _write_stub(folder: Path) -> str:
    """Writes the interpreter that pip calls for metadata; returns its path."""
    path = folder / "python"
    source = Path(metadata_stub.__file__).read_text(encoding="utf-8")
    path.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
