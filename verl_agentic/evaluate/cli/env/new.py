"""`verl-agentic env new`: writes a working environment to start from."""

from __future__ import annotations

import argparse
from pathlib import Path

_SKELETON = Path(__file__).parent / "skeleton"
_FILES = ("__init__.py", "env.py", "rows.py", "gold.py", "README.md", "test_env.py")
_NUM_EXAMPLES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", metavar="ID", help="name of the environment; must be a Python identifier")
    parser.add_argument("--dir", type=Path, default=Path(), help="make its folder here (default: the current folder)")


def run(args: argparse.Namespace) -> int:
    """Writes the folder and prints the next command."""
    from verl_agentic.base.errors import ConfigError

    folder = args.dir / args.env
    if not args.env.isidentifier() or args.env != args.env.lower():
        raise ConfigError(
            f"an environment's name is a Python identifier in lower case, got {args.env!r}; choose another"
        )
    if folder.exists():
        raise ConfigError(f"the folder exists, got {folder}; choose another name or --dir")
    _write_skeleton(folder, args.env)
    path = folder if folder.is_absolute() else f"./{folder}"
    print(f"{folder}: {', '.join([*_FILES, 'example.jsonl'])}\nnow run: verl-agentic env validate {path}")
    return 0


def write_examples(folder: Path) -> None:
    """Writes `example.jsonl` of the environment in a folder."""
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.log.files.rows import write_rows

    package = load_env_package(str(folder.resolve()))
    assert package.make_rows is not None
    write_rows(package.make_rows(split="train", count=_NUM_EXAMPLES, seed=0), folder / "example.jsonl")


def _write_skeleton(folder: Path, env_id: str) -> None:
    folder.mkdir(parents=True)
    class_name = "".join(part.capitalize() for part in env_id.split("_")) + ("" if env_id.endswith("env") else "Env")
    for name in _FILES:
        text = (_SKELETON / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("my_env", env_id).replace("MyEnv", class_name), encoding="utf-8")
    write_examples(folder)
