"""`verl-agentic env list`: lists the bundled environments, and those that other packages install."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_agentic.episode.env_package import EnvPackage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", nargs="?", help="list the ids of this environment (default: one line per environment)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per id instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints the environments; returns 1 if one of them cannot be imported."""
    import json

    entries = [{**env, "id": env_id} for env in _choose_envs(args.env) for env_id in env.pop("ids")]
    if args.json:
        print(json.dumps(entries))
    elif args.env is not None:
        print("\n".join(entry["id"] for entry in entries))
    else:
        _print_packages(entries)
    return 0 if all(entry["error"] is None for entry in entries) else 1


def describe_envs() -> list[dict[str, Any]]:
    """Returns what is known about every bundled environment, with all of its `ids`."""
    from verl_agentic.episode.env_package import known_envs

    return [_describe_env(name) for name in known_envs()]


def _choose_envs(name: str | None) -> list[dict[str, Any]]:
    """Returns every bundled and every installed environment, or one of them.

    Raises:
        ConfigError: no environment has this name.
    """
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.base.places.installed_envs import installed_envs
    from verl_agentic.base.settings import did_you_mean
    from verl_agentic.episode.env_package import known_envs

    origins = {env.name: env.origin for env in installed_envs().values()} | dict.fromkeys(known_envs(), "")
    if name is not None and name not in origins:
        raise ConfigError(
            f"no bundled or installed environment, got {name!r}; use one of {[*origins]}{did_you_mean(name, origins)}"
        )
    return [_describe_env(env, origin=origin) for env, origin in sorted(origins.items()) if name in (None, env)]


def _print_packages(entries: Sequence[dict[str, Any]]) -> None:
    """Prints one line per package."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    has_installed = any(entry["origin"] for entry in entries)
    table = Table("environment", *(["installed by"] * has_installed), "ids", "tasks", "extra", "needs", "what it is")
    packages = {entry["family"]: entry for entry in entries}
    for name, env in packages.items():
        about = Text(env["about"]) if env["error"] is None else Text("cannot be imported, see below", style="red")
        num_ids = sum(entry["family"] == name for entry in entries)
        origin = [env["origin"]] * has_installed
        table.add_row(name, *origin, str(num_ids), env["size"], env["extra"], env["needs"], about)
    table.caption = (
        f"{len(entries)} ids. `env list ENVIRONMENT` prints its ids; `pip install 'verl-agentic[EXTRA]'` installs what "
        "one needs."
    )
    console = Console()
    console.print(table)
    for name, env in packages.items():
        if env["error"] is not None:  # a column of the table would break its words
            console.print(Text(f"{name}: {env['error']}", style="red"), soft_wrap=True)


def _describe_env(name: str, *, origin: str = "") -> dict[str, Any]:
    """Returns an environment as `env list --json` prints it; `origin`: the package that installed it."""
    from verl_agentic.base.env_card import EnvCard
    from verl_agentic.base.errors import AgenticError
    from verl_agentic.episode.env_package import load_env_package

    entry: dict[str, Any] = {"ids": [name], "family": name, "kind": "", "size": "", "extra": "", "needs": ""}
    entry |= {"licence": "", "about": "", "make_rows": False, "gold": False, "examples": 0, "error": None}
    entry["origin"] = origin
    try:
        package = load_env_package(name)
    except AgenticError as error:
        return {**entry, "error": str(error)}
    card = package.card or EnvCard(kind="", size="")
    return {
        **entry,
        "ids": [f"{name}/{task}" for task in card.tasks] or [name],
        "kind": card.kind,
        "size": card.size,
        "extra": card.extra,
        "needs": card.needs,
        "licence": card.licence,
        "about": _read_first_line(package.folder / "__init__.py"),
        **_list_contents(package),
    }


def _list_contents(package: EnvPackage) -> dict[str, Any]:
    from verl_agentic.log.files.rows import read_rows

    examples = package.folder / "example.jsonl"
    return {
        "make_rows": package.make_rows is not None,
        "gold": package.gold is not None,
        "examples": len(read_rows(examples)) if examples.is_file() else 0,
    }


def _read_first_line(module: Path) -> str:
    """Returns the first line of a module's docstring; empty where an environment is no package of its own."""
    if not module.is_file():
        return ""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n")[0]
