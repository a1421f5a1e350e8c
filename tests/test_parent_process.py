"""A child process ends with its parent, also where the parent is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHILD = """
import os, sys, time
from verl_agentic.base.parent_process import end_with_parent
end_with_parent(int(sys.argv[1]))
print("waits", flush=True)
time.sleep(20)
print("outlived its parent", flush=True)
"""
PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, sys.argv[1], str(os.getpid())])
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "waits\n"
        parent.kill()
        assert parent.stdout.read() == ""  # returns when the child has ended, which holds the other end


def test_a_child_ends_when_its_parent_has_ended_before(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    not_its_parent = os.getppid()
    done = subprocess.run([sys.executable, str(tmp_path / "child.py"), str(not_its_parent)], capture_output=True)
    assert done.returncode == 1 and done.stdout == b""
