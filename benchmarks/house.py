"""Measures the package: sizes of its folders, names, comments, imports from the core into extensions, and circles.

    python benchmarks/house.py [ROOT] [--folders] [--check]

With `--check`, which `make check` runs, it fails when a limit is passed. It parses the sources and imports none of
them. A folder's sample of another repository is left out.
"""

# ruff: noqa: SIM905  # a text is shorter than a list of a hundred names
from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "verl_agentic"
CORE = ("base", "cli", "config", "credit", "entry_point", "episode", "log", "plugin", "rewards", "sampling", "verl")
"""Parts of the package that are its core, as prefixes of modules. The longest prefix of a module decides."""
EXTENSIONS = ("verl.extensions",)
"""Parts of these that are extensions. Whatever has no prefix here is an extension, too."""
FACADES = (PACKAGE,)
"""Modules that name public parts of the whole package, and import none of them when they are loaded."""
REGISTRIES = ("advantages", "alarms", "checks", "components", "curricula", "gates", "makers", "policy_losses")
"""Folders with a file per registered name, which may have any number of files."""
VAGUE = frozenset(
    "found told given known said left kept written own one by at least most where what who which shown taken wanted "
    "asked made had seen done gone here there then thus".split()
)
"""Participles, adverbs and pronouns that say nothing about the value."""
Imports = Mapping[str, Sequence[tuple[str, int]]]
"""Module -> the modules of the package that it imports, and the lines."""
MAX_SHORT = 0.15
"""Share of private functions whose name is one word: nine codebases of the field have 4 to 18 %."""
MAX_VAGUE = 0.005
"""Share of assigned names that are vague: those codebases have up to 0.6 %."""


@dataclass
class Source:
    """One file: its module name, lines and syntax tree."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def num_lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    @property
    def num_comments(self) -> int:
        """Comments, those behind code included."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Functions and methods, nested ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@dataclass
class Room:
    """Sizes of some files together."""

    files: int = 0
    lines: int = 0
    code: int = 0
    lengths: list[int] = field(default_factory=list)

    def add(self, source: Source) -> None:
        """Adds a file."""
        self.files += 1
        self.lines += source.num_lines
        self.code += len(code_lines(source))
        self.lengths += [(node.end_lineno or node.lineno) - node.lineno + 1 for node in source.functions]

    def __str__(self) -> str:
        lengths = sorted(self.lengths) or [0]
        p50, p90 = (lengths[int(share * (len(lengths) - 1))] for share in (0.5, 0.9))
        return f"{self.files:6} {self.lines:8} {self.code:8}   {p50}/{p90}/{lengths[-1]}"


def read_sources(root: Path) -> list[Source]:
    """Returns the files of the package below a checkout."""
    sources = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        if "sample" in path.parts or "_bundled" in path.parts:
            continue
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        sources.append(Source(path=path, module=module, text=text, tree=ast.parse(text)))
    return sources


def code_lines(source: Source) -> set[int]:
    """Returns the lines of a file that have code: no docstrings, comments, imports or blank lines."""
    skipped = set()
    for node in ast.walk(source.tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # pyright: ignore
    lines = enumerate(source.text.splitlines(), start=1)
    return {number for number, line in lines if line.strip() and line.strip()[0] != "#"} - skipped


def assigned_names(source: Source) -> list[str]:
    """Returns all names that are assigned, arguments and fields of dataclasses included."""
    names = [
        node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return names + [node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)]


def is_core(module: str) -> bool:
    """Tells whether a module belongs to the core."""
    if module in FACADES:
        return True

    def longest(prefixes: Sequence[str]) -> int:
        dotted = module.removeprefix(PACKAGE).lstrip(".") + "."
        return max((len(prefix) for prefix in prefixes if dotted.startswith(f"{prefix}.")), default=-1)

    return longest(CORE) > longest(EXTENSIONS)


def imported_modules(source: Source, modules: set[str]) -> Iterator[tuple[str, int]]:
    """Yields module and line of every import of the package, also inside of functions and for type checkers."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = sorted({name if name in modules else node.module for name in inner})
        else:
            continue
        yield from ((name, node.lineno) for name in names if name in modules)


def registry_entry(module: str) -> str:
    """Returns the registry that a module is an entry of, or an empty text."""
    folder, _, name = module.rpartition(".")
    return folder if folder.rpartition(".")[2] in REGISTRIES and not name.startswith("_") else ""


def show_imports(imports: Imports) -> list[str]:
    """Prints imports from the core into extensions, which it returns, and imports of registry entries from outside."""
    arrows, entries = [], []
    for module, targets in imports.items():
        for target, line in targets:
            text = f"  {module}:{line} -> {target}"
            if is_core(module) and not is_core(target):
                arrows.append(text)
            if (registry := registry_entry(target)) and not module.startswith(registry):
                entries.append(text)
    for title, lines in (("imports from the core into extensions", arrows), ("imports of registry entries", entries)):
        print(f"\n{title}: {len(lines)}", *lines, sep="\n")
    return arrows


def show_circles(sources: list[Source], imports: Imports) -> list[tuple[str, ...]]:
    """Prints the groups of folders that import each other in a circle, and returns them."""
    folders = {s.module: s.module if s.path.name == "__init__.py" else s.module.rpartition(".")[0] for s in sources}
    arrows: dict[str, set[str]] = {folders[module]: set() for module in imports}
    for module, targets in imports.items():
        arrows[folders[module]] |= {folders[target] for target, _ in targets if target not in FACADES}
    reached = {folder: reachable_folders(folder, arrows) for folder in arrows}
    mutual = ([other for other in reached[folder] if folder in reached.get(other, ())] for folder in arrows)
    circles = sorted({tuple(sorted(group)) for group in mutual if len(group) > 1})
    print(f"\ncircles between folders: {len(circles)}", *(f"  {', '.join(circle)}" for circle in circles), sep="\n")
    return circles


def reachable_folders(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Returns the folders that a folder imports, directly or through others."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - reached - {start}
        reached |= new
        waiting += new
    return reached | {start}


def show_names(sources: list[Source]) -> tuple[float, float]:
    """Prints the shares of one-word private functions, vague names and comments, and returns the first two."""
    private = [node.name for source in sources for node in source.functions if node.name[:1] == "_" != node.name[1:2]]
    short = Counter(name for name in private if "_" not in name[1:])
    names = [name for source in sources for name in assigned_names(source)]
    vague = Counter(name for name in names if name in VAGUE)
    lines, comments = (sum(getattr(source, key) for source in sources) for key in ("num_lines", "num_comments"))
    shares = short.total() / len(private), vague.total() / len(names)
    print(f"\none-word private functions {shares[0]:.1%} of {len(private)}: {top_names(short)}")
    print(f"vague variable names {shares[1]:.2%} of {len(names)}: {top_names(vague)}")
    print(f"comments {comments / lines:.1%} of {lines} lines")
    return shares


def top_names(counts: Counter[str]) -> str:
    """Returns the most frequent names with their counts."""
    return ", ".join(f"{name} {count}" for name, count in counts.most_common(12))


def show_rooms(sources: list[Source], *, with_folders: bool) -> None:
    """Prints the sizes of folders, core and extensions, and folders with more than 12 files."""
    rooms: dict[str, Room] = {}
    folders: Counter[Path] = Counter()
    for source in sources:
        parts = source.module.split(".")[1:]
        is_folder = len(parts) > 1 or source.path.name == "__init__.py"
        names = [
            (parts[0] if parts and is_folder else "(top files)"),
            "core" if is_core(source.module) else "extensions",
        ]
        inner = ".".join(parts if source.path.name == "__init__.py" else parts[:-1])
        for name in [*names, "all", *([inner] if with_folders and "." in inner else [])]:
            rooms.setdefault(name, Room()).add(source)
        folders[source.path.parent] += source.path.name != "__init__.py"
    print(f"{'':32}{'files':>6} {'lines':>8} {'code':>8}   function lines p50/p90/max")
    for name in sorted(rooms, key=lambda name: (name in ("core", "extensions", "all"), name)):
        print(f"{name:32}{rooms[name]}")
    crowded = {path: count for path, count in folders.items() if count > 12 and path.name not in REGISTRIES}
    print(f"\n{len(folders)} folders; with more than 12 files beside `__init__`, registries left out: {len(crowded)}")
    for path, count in sorted(crowded.items()):
        print(f"  {path} {count}")


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).resolve().parents[1])
    parser.add_argument("--folders", action="store_true", help="sizes of all folders")
    parser.add_argument("--check", action="store_true", help="fail when a limit is passed")
    args = parser.parse_args()
    sources = read_sources(args.root)
    show_rooms(sources, with_folders=args.folders)
    short, vague = show_names(sources)
    modules = {source.module for source in sources}
    imports = {s.module: list(imported_modules(s, modules)) for s in sources if s.module not in FACADES}
    arrows, circles = show_imports(imports), show_circles(sources, imports)
    if args.check and (short > MAX_SHORT or vague > MAX_VAGUE or arrows or circles):
        parser.exit(
            1,
            f"\nAllowed are {MAX_SHORT:.0%} private functions of one word, {MAX_VAGUE:.1%} vague names, no import"
            " from the core into extensions and no circle between folders. Name functions by verb and noun,"
            " variables by what they hold.\n",
        )


if __name__ == "__main__":
    main()
