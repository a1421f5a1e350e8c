"""The place of an exception in the user's code, for messages."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from verl_agentic.base.places.installed_envs import installed_places

_PACKAGE = Path(__file__).parents[2]
_INSTALLED = tuple(f"{folder}{os.sep}" for folder in (_PACKAGE, *map(sysconfig.get_path, ("stdlib", "platstdlib"))))
"""Beginnings of names of files that are not the user's."""
_INSTALLED_PARTS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

_OF_LOOP = os.path.join("asyncio", "events.py")
"""End of the name of the file that calls what an event loop runs."""
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+),? in (\S+)', re.MULTILINE)


def describe_cause(error: BaseException) -> str:
    """Returns type, message and place of an exception: `KeyError: 'x' (my_env/tasks.py:3 in build)`."""
    place = locate_error(error)
    return f"{type(error).__name__}: {error}" + (f" ({place})" if place else "")


def locate_error(error: BaseException) -> str:
    """Returns `file:line in function` of the innermost frame in the user's files; empty without one.

    The user's files are all but this package, the standard library and installed packages. Packages of installed
    environments count as the user's. Exceptions without such a frame have the place of their cause, context or members.
    A path below the working folder is relative.
    """
    for part in iter_causes(error):
        if isinstance(part, SyntaxError) and part.filename and _is_of_user(part.filename):
            return f"{_shorten_path(part.filename)}:{part.lineno}"
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(part.__traceback__)]
        for code, line in reversed(frames):
            if _is_of_user(code.co_filename):
                return f"{_shorten_path(code.co_filename)}:{line} in {code.co_name}"
    return ""


def locate_trace(text: str) -> str:
    """Returns the same of a traceback as text, as Ray passes it between processes."""
    places = [
        f"{_shorten_path(filename)}:{line} in {function}"
        for filename, line, function in _FRAME.findall(text)
        if _is_of_user(filename)
    ]
    return places[-1] if places else ""


def locate_running(frames: Sequence[str]) -> str:
    """Returns the same of running code of an event loop, from its formatted frames, the innermost last."""
    begin = max((number for number, frame in enumerate(frames) if f'{_OF_LOOP}"' in frame), default=0)
    return locate_trace("\n".join(frames[begin:]))


def iter_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception, its causes, its contexts and the members of groups, each once, the nearest first."""
    seen_ids: set[int] = set()
    pending: list[object] = [error]
    while pending:
        part = pending.pop(0)
        if not isinstance(part, BaseException) or id(part) in seen_ids:
            continue
        seen_ids.add(id(part))
        yield part
        pending += [part.__cause__, None if part.__suppress_context__ else part.__context__]
        pending += getattr(part, "exceptions", None) or ()


def _is_of_user(filename: str) -> bool:
    if filename.startswith(("<", *_INSTALLED)):
        return False
    is_installed = any(part in filename for part in _INSTALLED_PARTS)
    return not is_installed or filename.startswith(installed_places())


def _shorten_path(filename: str) -> str:
    try:
        return filename.removeprefix(f"{os.getcwd()}{os.sep}")
    except OSError:  # the working folder is gone
        return filename
