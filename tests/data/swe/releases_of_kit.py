"""Releases of a small package that was written for these tests, as source distributions in a folder."""

from __future__ import annotations

import io
import shutil
import tarfile
from importlib.metadata import distribution
from pathlib import Path

NAME = "mining-kit"

_SLUG_OLD = '''
def slug(text, limit=0):
    """Returns a text in lower case with hyphens."""
    name = "-".join(text.lower().split())
    return name[:limit] if limit else name


def halves(numbers):
    middle = len(numbers) // 2
    return numbers[:middle], numbers[middle + 1:]


def shout(text, *, times=1):
    if not text and times > 1:
        return None
    return text.upper() + "!" * times
'''
_SLUG_NEW = _SLUG_OLD.replace("name[:limit] if", 'name[:limit].strip("-") if').replace("[middle + 1:]", "[middle:]")
_TESTS_OLD = """
import pytest

from mining_kit import shout, slug


@pytest.mark.parametrize("text", ["A b", "a  B"])
def test_slug(text):
    assert slug(text) == "a-b"


def test_shout():
    assert shout("a") == "A!"
    assert shout("a", times=2) == "A!!"
"""
_TESTS_NEW = (
    _TESTS_OLD.replace("import shout, slug", "import halves, shout, slug")
    + """

def test_limit_leaves_no_hyphen_at_the_end():
    assert slug("ab cd", limit=3) == "ab"


class TestHalves:
    def test_nothing_is_lost(self):
        assert halves([1, 2, 3, 4]) == ([1, 2], [3, 4])
"""
)
_CHANGES = """Changes
=======

1.1
---

* Fix ``slug``: a limit leaves no hyphen at the end (#12, thanks @somebody)
* Support Python 3.14 and drop Python 3.8

1.0
---

* First release
"""


def files(version: str, *, sources: str, tests: str, changes: str = "") -> dict[str, str]:
    """Returns the files of a release."""
    return {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n",
        # A build would fail loudly: no command may run third-party code on the host.
        "setup.py": "raise SystemExit('setup.py was run')\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": "raise SystemExit('the backend was imported')\n",
        "src/mining_kit/__init__.py": f'from mining_kit.texts import *\n__version__ = "{version}"\n',
        "src/mining_kit/texts.py": sources,
        "tests/test_texts.py": tests,
        "CHANGES.rst": changes,
    }


RELEASES = {
    "1.0": files("1.0", sources=_SLUG_OLD, tests=_TESTS_OLD, changes=_CHANGES[_CHANGES.index("1.0\n") :]),
    "1.1": files("1.1", sources=_SLUG_NEW, tests=_TESTS_NEW, changes=_CHANGES),
    "1.1.1": files("1.1.1", sources=_SLUG_NEW, tests=_TESTS_NEW, changes=_CHANGES),
}


def write_releases(folder: Path, releases: dict[str, dict[str, str]] = RELEASES) -> Path:
    """Writes source distributions and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for version, contents in releases.items():
        stem = f"{NAME.replace('-', '_')}-{version}"
        with tarfile.open(folder / f"{stem}.tar.gz", "w:gz") as archive:
            for path, text in contents.items():
                member = tarfile.TarInfo(f"{stem}/{path}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
    return folder


def write_site(folder: Path) -> Path:
    """Copies pytest and its requirements of this interpreter."""
    folder.mkdir(parents=True)
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for top in {path.parts[0] for path in distribution(name).files or () if path.parts[0] not in ("..", "bin")}:
            source = Path(str(distribution(name).locate_file(top)))
            if source.is_dir():
                shutil.copytree(source, folder / top, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
            elif source.suffix == ".py":
                shutil.copy(source, folder / top)
    return folder
