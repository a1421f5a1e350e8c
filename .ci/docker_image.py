"""Writes the root folder of a container image to stdout, as a tar: this Python with its standard library, a shell, git.

    python docker_image.py | docker import - NAME

Nothing is fetched. The byte code that lies beside the standard library goes along: where nothing can be written, it
would be made anew at every start.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

_TOOLS = (
    "bash sh awk base64 basename cat chmod cp cut date dd df diff dirname du env expr find git grep gzip head id kill "
    "ln ls mkdir mktemp mv nproc od patch ps pwd readlink realpath rm rmdir sed seq sleep sort stat tail tar tee "
    "timeout touch tr true uname uniq wc which xargs"
)
_FOLDERS = ("usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc", "dev", "proc", "sys", "root", "var/tmp")
_WRITABLE = ("tmp", "work")
_LINKS = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
}
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def main() -> None:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        _Image(archive).build()


class _Image:
    """A tar in the making; no path is written twice."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._written: set[str] = set()

    def build(self) -> None:
        for folder in (*_FOLDERS, *_WRITABLE):
            self._entry(folder, tarfile.DIRTYPE, mode=0o1777 if folder in _WRITABLE else 0o755)
        for path, target in _LINKS.items():
            self._entry(path, tarfile.SYMTYPE, link=target)
        for name, text in _ETC.items():
            self._entry(f"etc/{name}", tarfile.REGTYPE, data=text.encode())
        programs = {tool: found for tool in _TOOLS.split() if (found := shutil.which(tool, path="/usr/bin:/bin"))}
        for tool, path in programs.items():
            self._file(os.path.realpath(path), f"usr/bin/{tool}")
        for path, target in _python_files():
            self._file(path, target)
        for name in ("python", "python3"):
            self._entry(f"usr/local/bin/{name}", tarfile.SYMTYPE, link=_VERSION)
        extensions = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
        for library in _libraries([sys.executable, *programs.values(), *map(str, extensions)]):
            self._file(os.path.realpath(library), _library_place(library))

    def _file(self, source: str, target: str) -> None:
        if target not in self._written:
            self._written.add(target)
            entry = self._archive.gettarinfo(source, target)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode |= 0o444
            entry.type, entry.linkname = tarfile.REGTYPE, ""  # not a hard link to another of its names
            entry.size = os.path.getsize(source)
            with open(source, "rb") as file:
                self._archive.addfile(entry, file)

    def _entry(self, path: str, kind: bytes, *, mode: int = 0o644, link: str = "", data: bytes = b"") -> None:
        if path not in self._written:
            self._written.add(path)
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(data)
            self._archive.addfile(entry, io.BytesIO(data))


def _python_files() -> Iterator[tuple[str, str]]:
    """Yields (path here, path in the image) of the interpreter and its standard library."""
    yield os.path.realpath(sys.executable), f"usr/local/bin/{_VERSION}"
    library = sysconfig.get_path("stdlib")
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith("config-")]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path, os.path.join("usr/local/lib", _VERSION, os.path.relpath(path, library))


def _libraries(programs: list[str]) -> list[str]:
    """Returns the shared libraries that the programs load, the loader itself included."""
    listing = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, flags=re.MULTILINE))
    # Loaded by name at run time: what ends threads, and who maps names to users.
    for name in ("libgcc_s.so.1", "libstdc++.so.6", "libnss_files.so.2"):
        found |= {str(path) for path in Path("/usr/lib").glob(f"*/{name}")}
    return sorted(found)


def _library_place(path: str) -> str:
    """Returns where the loader looks for it without being told."""
    if path.startswith(("/lib64/", "/lib/", "/usr/lib")):
        return path.lstrip("/") if path.startswith("/usr/") else "usr" + path
    return f"usr/lib/{sysconfig.get_config_var('MULTIARCH') or ''}/{os.path.basename(path)}".replace("//", "/")


if __name__ == "__main__":
    main()
