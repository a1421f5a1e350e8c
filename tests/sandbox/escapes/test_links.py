"""No link that code puts in the place of a folder leads the trainer's side out of the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from escape_contenders import _ORDINARY_USER, _SETPRIV, UnavailableError, _python_for_all

import verl_agentic
from verl_agentic.sandbox.inside import landlock

_SECRET = "PRIVATE KEY"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the machine, which its owner may read."""
    folder = Path(tempfile.mkdtemp(prefix="outside"))
    (folder / "sub").mkdir(mode=0o755)
    for path in (folder / "secret", folder / "sub" / "secret"):
        path.write_text(_SECRET)
    yield folder
    shutil.rmtree(folder)


def _state(folder: Path) -> list[tuple[str, int, int, bytes]]:
    paths = [folder, *sorted(folder.rglob("*"))]
    return [(str(p), p.stat().st_mode, p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in paths]


@pytest.mark.sample(1)
@pytest.mark.parametrize("user", ["this_user", "ordinary_user"])
def test_links_in_place_of_folders_lead_nowhere(user: str, outside: Path) -> None:
    if reason := landlock.why_not():
        pytest.skip(reason)
    python, prefix = sys.executable, ()
    # Private to the ordinary user; open to all if the trainer is root, because code is then another user.
    folders, private = [outside, outside / "sub"], user == "ordinary_user"
    for path in [*folders, *(folder / "secret" for folder in folders)]:
        os.chmod(path, (0o700 if private else 0o755) if path.is_dir() else (0o600 if private else 0o644))
    if private:
        if os.geteuid() != 0:
            pytest.skip("this user is an ordinary one already")
        try:
            python, prefix = _python_for_all(), _SETPRIV
        except UnavailableError as cause:
            pytest.skip(str(cause))
        for path in [*folders, *(folder / "secret" for folder in folders)]:
            os.chown(path, _ORDINARY_USER, _ORDINARY_USER)
    before = _state(outside)
    paths = [str(Path(verl_agentic.__file__).parents[1]), str(Path(__file__).parent)]
    code = f"import sys; sys.path[:0] = {paths!r}; import asyncio, json, link_attack; "
    code += f"print(json.dumps(asyncio.run(link_attack.attack({str(outside)!r}))))"
    result = subprocess.run(
        [*prefix, python, "-I", "-c", code], capture_output=True, text=True, cwd="/", timeout=120, env=dict(os.environ)
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["errors"] == []
    assert not [text for text in report["seen"] if _SECRET in text]
    assert len(report["seen"]) > 20
    assert _state(outside) == before
