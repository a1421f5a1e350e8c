"""Answers pip's requests for metadata with the sdist's own PKG-INFO, so that `pip download` runs no third-party code.

pip builds the metadata of a source distribution before it keeps the file. It calls the build backend through the
interpreter `sys.executable` and the files `input.json` and `output.json` (pyproject_hooks). This script is that
interpreter. It accepts one request and refuses every other command line.

    metadata_stub.py IN_PROCESS_SCRIPT prepare_metadata_for_build_wheel CONTROL_FOLDER
"""

import json
import re
import sys
from pathlib import Path

_HOOK = "prepare_metadata_for_build_wheel"


def answer(arguments: list[str], *, source: Path) -> int:
    """Writes metadata and the answer; returns the exit code, 1 for other requests."""
    if len(arguments) != 3 or arguments[1] != _HOOK:
        print(f"third-party code is not run here, got {arguments}", file=sys.stderr)
        return 1
    control = Path(arguments[2])
    request = json.loads((control / "input.json").read_text(encoding="utf-8"))
    info = (source / "PKG-INFO").read_bytes()
    fields = dict(re.findall(rb"^(Name|Version): *([^\r\n]*)", info, re.M))
    name = re.sub(r"[-_.]+", "_", fields[b"Name"].decode().strip()).lower()
    folder = Path(request["kwargs"]["metadata_directory"], f"{name}-{fields[b'Version'].decode().strip()}.dist-info")
    folder.mkdir(parents=True)
    (folder / "METADATA").write_bytes(info)
    (control / "output.json").write_text(json.dumps({"return_val": folder.name}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(answer(sys.argv[1:], source=Path()))
