"""The process of one check of `gpu.py`: python _gpu_process.py FILE DEVICE OUT

FILE defines `run(check)`; its name without `.py` is the check's.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from _gpu_check import Check


def main(file: str, device: str, out: str) -> int:
    """Runs the check; the exit code says whether it ran to its end, not whether its bounds are met."""
    check = Check(name=Path(file).stem, device=device, out=Path(out))
    runpy.run_path(file)["run"](check)
    check.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
