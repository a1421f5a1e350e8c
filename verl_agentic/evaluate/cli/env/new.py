"""`verl-agentic env new`: writes a working environment to start from."""

from __future__ import annotations

import argparse
from pathlib import Path

_SKELETON = Path(__file__).parent / "skeleton"
_FILES = ("__init__.py", "env.py", "rows.py", "gold.py", "README.md", "test_env.py")
_NUM_EXAMPLES = 4
_PROJECT = """\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"

[project]
name = "{env_id}"
version = "0.1.0"
description = "An environment for verl_agentic"
readme = "README.md"
requires-python = ">=3.10"
dependencies = []  # of the environment; verl_agentic itself is installed before it

[project.entry-points."verl_agentic.environments"]
{env_id} = "{env_id}"  # agentic.env: {env_id}

[tool.hatch.build.targets.wheel]
packages = ["{env_id}"]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", metavar="ID", help="name of the environment; must be a Python identifier")
    parser.add_argument("--dir", type=Path, default=Path(), help="make its folder here (default: the current folder)")
    parser.add_argument("--package", action="store_true", help="write a package that can be installed, with the "
                        "environment as its entry point")  # fmt: skip
    parser.add_argument("--from", dest="source", metavar="SOURCE", help="write it around a text environment with "
                        "gymnasium's interface: gymnasium:ID, module:Class or file.py:Class")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Writes the folder and prints the next command."""
    project = args.dir / args.env
    folder = project / args.env if args.package else project
    _check_name(args.env, project, is_package=args.package)
    files = _FILES
    if args.source is None:
        _write_skeleton(folder, args.env)
    else:
        from verl_agentic.evaluate.cli.env.new_from import write_around

        files = write_around(folder, args.env, args.source)
    write_examples(folder)
    path = folder if folder.is_absolute() else f"./{folder}"
    print(f"{folder}: {', '.join([*files, 'example.jsonl'])}")
    if args.package:
        readme = (folder / "README.md").read_text(encoding="utf-8")
        (folder / "README.md").unlink()
        (project / "README.md").write_text(readme.replace(f"./{args.env}", args.env), encoding="utf-8")
        (project / "pyproject.toml").write_text(_PROJECT.format(env_id=args.env), encoding="utf-8")
        install = project if project.is_absolute() else f"./{project}"
        print(f"install it: pip install -e {install}, then agentic.env={args.env}")
    print(f"now run: verl-agentic env validate {path}")
    return 0


def _check_name(env_id: str, project: Path, *, is_package: bool) -> None:
    """Raises ConfigError for a name that is taken, or that cannot be imported."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.episode.env_package import known_envs

    if not env_id.isidentifier() or env_id != env_id.lower():
        raise ConfigError(f"an environment's name is a Python identifier in lower case, got {env_id!r}; choose another")
    if is_package and env_id in known_envs():
        raise ConfigError(
            f"an installed environment cannot have the name of a bundled one, got {env_id!r}; choose another"
        )
    if project.exists():
        raise ConfigError(f"the folder exists, got {project}; choose another name or --dir")


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
