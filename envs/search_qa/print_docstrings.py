"""Prints the docstrings of Python's standard library as passages, one JSON object per line.

A program of its own, because libraries replace functions of the standard library when they are imported: torch does so
with `inspect.getfile`.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_MODULES = (
    *("builtins", "array", "ast", "base64", "bisect", "bz2", "calendar", "cmath", "collections", "copy"),
    *("csv", "datetime", "decimal", "difflib", "dis", "email.utils", "filecmp", "fnmatch", "fractions", "functools"),
    *("getpass", "glob", "gzip", "hashlib", "heapq", "hmac", "html", "inspect", "io", "itertools", "json", "keyword"),
    *("linecache", "locale", "lzma", "math", "mimetypes", "operator", "os", "os.path", "pathlib", "pickle", "platform"),
    *("pprint", "queue", "random", "re", "sched", "secrets", "shelve", "shlex", "shutil", "signal", "socket"),
    *("statistics", "string", "struct", "subprocess", "sys", "tarfile", "tempfile", "textwrap", "threading", "time"),
    *("timeit", "traceback", "unicodedata", "urllib.parse", "uuid", "warnings", "weakref", "webbrowser", "zipfile"),
    "zlib",
)
_MAX_DOC_CHARS = 300


def make_passages() -> list[dict[str, str]]:
    """Returns one passage for each documented function, class and method.

    What has the same name and text in two places, such as `random.choice` and `random.Random.choice`, has one passage.
    """
    passages: dict[tuple[str, str], dict[str, str]] = {}
    for name in _MODULES:
        for title, item in _iter_items(importlib.import_module(name), "" if name == "builtins" else f"{name}."):
            text = _shorten(item.__doc__ or "")
            if text:
                passage = {"id": title, "title": title, "text": text}
                passages.setdefault((title.rpartition(".")[2], text), passage)
    return list(passages.values())


def _iter_items(owner: ModuleType | type, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields names and objects: what a module exports, then what its classes define."""
    names = getattr(owner, "__all__", None) or [name for name in vars(owner) if not name.startswith("_")]
    for name in sorted(names, key=lambda name: (inspect.isclass(vars(owner).get(name)), name)):
        item = vars(owner).get(name)
        if not (callable(item) or isinstance(item, (classmethod, staticmethod))):
            continue
        yield f"{prefix}{name}", item
        if inspect.isclass(item) and inspect.ismodule(owner):
            yield from _iter_items(item, f"{prefix}{name}.")


def _shorten(doc: str) -> str:
    """Returns the beginning of a docstring in one line."""
    text = " ".join(inspect.cleandoc(doc).split())
    return text if len(text) <= _MAX_DOC_CHARS else text[:_MAX_DOC_CHARS].rpartition(" ")[0] + " ..."


if __name__ == "__main__":
    for record in make_passages():
        print(json.dumps(record))
