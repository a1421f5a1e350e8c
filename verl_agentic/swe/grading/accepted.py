"""Selects the files of a change that may enter the tree in which hidden tests run."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from verl_agentic.graders.code.patch_paths import is_harness, is_test

MAX_FILE_BYTES = 1_000_000
MAX_TOTAL_BYTES = 16_000_000
MAX_FILES = 1000
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 300, 255  # the second is Linux's
# Legitimate code has such words too, so they are reported and never refused.
_FLAGS = (
    "_pytest", "import pytest", "pluggy", "PYTEST_CURRENT_TEST", "sys.modules", "sys.meta_path", "sys.settrace",
    "sys.setprofile", "_getframe", "currentframe", "inspect.stack", "gc.get_objects", "gc.get_referrers", "os._exit",
    "os.fork", "os.kill", "atexit", "ctypes", "SkipTest", "importlib.abc", "builtins.", "__subclasshook__",
    "__init_subclass__", "/proc/", "def __eq__", "def __ne__", "linecache", "unittest", "signal.", "threading.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The accepted part of a change."""

    files: Mapping[str, bytes | None]
    """Path -> new content; None if the file is deleted."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Path -> reason."""
    flags: tuple[str, ...] = ()
    """`path: word` for words in added lines that cheats use and most fixes do not. They are no verdict."""


def accept(
    base: Mapping[str, bytes],
    changed: Mapping[str, bytes | None],
    *,
    skipped: Mapping[str, str] | None = None,
    protected: Mapping[str, bytes] | None = None,
    allowed: Iterable[str] = (),
    site_modules: Iterable[str] = (),
) -> Accepted:
    """Returns the changed files that are taken over, and the reasons for the others.

    Refused: tests, modules that only tests import, configuration and start-up files, modules that shadow others, paths
    outside of the tree, paths that differ from a known one only in case or Unicode form, files at the place of a folder
    or below a file, files that are too large, and everything that is no regular file.

    Args:
        base: the base tree.
        changed: path -> new content, or None for a deleted file. Files equal to those of the base tree are ignored.
        skipped: path -> reason, for what could not be read (`TakenTree.skipped`).
        protected: the hidden tests. Modules of the base tree that only they import are tests, too.
        allowed: paths of the reference patch; they may be configuration, but no tests.
        site_modules: names of installed modules that a new file must not shadow.
    """
    tests = protected or {}
    hidden, modules = frozenset(tests), frozenset(site_modules)
    allowed = frozenset(form for path in allowed for form in (path, _normalise_path(path)))
    paths_by_form = {_normalise_path(path): path for path in (*base, *hidden)}
    refused = dict(skipped or {})
    files: dict[str, bytes | None] = {}
    total = 0
    for path, content in sorted(changed.items()):
        if path in refused or base.get(path) == content:
            continue
        reason = _wrong_path(path, paths_by_form) or _wrong_kind(path, hidden, allowed)
        if not reason and path not in allowed and path in base and is_helper_of_tests(path, base, tests):
            reason = "test"
        if not reason and path not in base and path not in allowed and _is_shadowing(path, modules):
            reason = "shadows an installed module"
        if not reason and content is not None:
            total += len(content)
            if len(content) > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES or len(files) >= MAX_FILES:
                reason = "too large"
        if reason:
            refused[path] = reason
        else:
            files[path] = content
    for path, reason in _find_collisions(files, (*base, *hidden)).items():
        refused[path] = reason
        del files[path]
    return Accepted(files=files, refused=refused, flags=tuple(_iter_flags(base, files)))


def changes(base: Mapping[str, bytes], final: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Returns the files of a final tree that differ from the base tree; None for deleted ones."""
    changed: dict[str, bytes | None] = {path: new for path, new in final.items() if base.get(path) != new}
    return changed | {path: None for path in base if path not in final}


def is_helper_of_tests(path: str, base: Mapping[str, bytes], tests: Mapping[str, bytes]) -> bool:
    """Returns whether tests import a module, and no other file of the base tree does."""
    parts = path.removesuffix(".py").split("/")
    if not path.endswith(".py") or parts[-1] in ("__init__", "__main__"):
        return False
    name, parent = re.escape(parts[-1].encode()), re.escape(parts[-2].encode() if len(parts) > 1 else b"")
    # `from x.name import`, `import x.name`, `from x import (a, name)`, and `x.name` in configuration.
    module = re.compile(
        rb"^[ \t]*(?:from[ \t]+[\w.]*\b%b[ \t]+import\b|import[ \t]+[^\n#]*\b%b\b"
        rb"|from[ \t]+[\w.]+[ \t]+import[ \t]*(?:\([^)]*|[^\n#]*)\b%b\b)|\b%b\.%b\b" % (name, name, name, parent, name),
        re.MULTILINE,
    )

    def imports(content: bytes) -> bool:
        return parts[-1].encode() in content and module.search(content) is not None

    others = (
        content
        for other, content in base.items()
        if other != path and not is_test(other) and other.endswith((".py", ".toml", ".cfg", ".ini", ".pyx"))
    )
    return any(map(imports, tests.values())) and not any(map(imports, others))


def _find_collisions(files: Mapping[str, bytes | None], others: Iterable[str]) -> dict[str, str]:
    """Returns the files at the place of a folder of the final tree, and those below one of its files."""
    final_paths = {path for path in others if path not in files} | {
        path for path, content in files.items() if content is not None
    }
    folders = {folder for path in final_paths for folder in folders_above(path)}
    collisions = {path: "is a folder of the tree" for path in files if path in final_paths & folders}
    below = {
        path: "lies below a file"
        for path in files
        if path in final_paths and not final_paths.isdisjoint(folders_above(path))
    }
    return collisions | below


def folders_above(path: str) -> list[str]:
    """Returns all folders above a file."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _wrong_path(path: str, paths_by_form: Mapping[str, str]) -> str:
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        return "leaves the tree, or is no plain path"
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in (path, *parts)]
    if sizes[0] > _MAX_PATH_BYTES or max(sizes[1:]) > _MAX_NAME_BYTES:
        return "is longer than a file system takes"
    if re.search(r"[\x00-\x1f\x7f\\]", path) or not path.isprintable():
        return "has control characters"
    if ".git" in (part.casefold() for part in parts):
        return "belongs to git"
    if (same := paths_by_form.get(_normalise_path(path), path)) != path:
        return f"differs from {same} only in case or Unicode form"
    return ""


def _wrong_kind(path: str, hidden: frozenset[str], allowed: frozenset[str]) -> str:
    """Returns why a path is refused by its name. The normal form counts too: Python normalises names of modules."""
    for form in (path, _normalise_path(path)):
        if is_test(form) or form in hidden:
            return "test"
        if is_harness(form) and form not in allowed:
            return "configuration, start-up file or shadowing module"
    return ""


def _is_shadowing(path: str, modules: frozenset[str]) -> bool:
    parts = _normalise_path(path).removesuffix(".py").split("/")
    return parts[0] in modules or (parts[0] in ("src", "lib", "python") and len(parts) > 1 and parts[1] in modules)


def _normalise_path(path: str) -> str:
    """Returns the form in which file systems and Python may compare names."""
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
    return "/".join(part.strip(" .") or part for part in normal.split("/")) if " " in normal else normal


def _iter_flags(base: Mapping[str, bytes], files: Mapping[str, bytes | None]) -> Iterable[str]:
    for path, content in files.items():
        before = set(base.get(path, b"").decode("utf-8", "replace").splitlines())
        added = [line for line in (content or b"").decode("utf-8", "replace").splitlines() if line not in before]
        yield from (f"{path}: {word}" for word in _FLAGS if any(word in line for line in added))
