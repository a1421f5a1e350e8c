"""`verl-agentic recipes`: lists systems, methods and scales, finds names, and writes the config of a combination."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from verl_agentic.catalogue.names import Name
    from verl_agentic.config.recipe_groups import Recipe

_NAME = "my_run"
_BASE = "agentic/plugin"
_SHORT_RUN: dict[str, Any] = {
    "data": {"train_batch_size": 4, "max_prompt_length": 2_048, "max_response_length": 2_048},
    "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 4}, "rollout": {"val_kwargs": {"n": 1}}},
    "trainer": {"total_training_steps": 4, "critic_warmup": 0, "val_before_train": False},
}
"""Sizes of a system that fit the 4,096 positions of a tiny model, and the time of a CPU. No scale has them, because the
groups set different keys."""
_WIDTH = 200
"""Columns of tables that go to a file or a pipe."""
_SYSTEMS = ("arpo", "deepswe", "r1", "ragen_starpo", "retool", "search_r1", "toolrl", "webrl")
"""Systems of the short list: one of each kind of task."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "system",
        nargs="?",
        metavar="NAME",
        help="show this system: its config, commands, values and README; or find any other name of the literature: "
        "where the thing is, and what differs from the paper",
    )
    parser.add_argument("--method", metavar="NAME", help="take this method (default: that of the system's authors)")
    parser.add_argument("--scale", metavar="NAME", help="take this scale (default: the one nearest to the authors')")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the config to this file")
    parser.add_argument(
        "--toy", action="store_true", help="take rows that this package makes, not the data set of the paper"
    )
    parser.add_argument("--all", action="store_true", help="list all systems, and the methods of one system, too")


def run(args: argparse.Namespace) -> int:
    """Prints the lists, the places of a name, or a combination; returns 0.

    Raises:
        ConfigError: a name is unknown, the file exists, or the commands of a system have no other rows.
    """
    from rich.console import Console

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.catalogue.names import find_name
    from verl_agentic.config.recipe_groups import recipe_names

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    combines = any((args.method, args.scale, args.write))
    name = find_name(args.system) if args.system and not combines else None
    if name is not None:
        if name.key not in recipe_names("system"):
            print(format_name(name))
            return 0
        args.system = name.key
    recipes = _load_recipes(args)
    if args.toy and not any(recipe.noted("toy") for recipe in recipes):
        raise ConfigError(f"--toy is for systems with the data set of a paper, got {args.system}; drop it")
    if not recipes:
        _print_groups(console, is_short=not args.all)
        return 0
    path = args.write or Path(f"{_NAME}.yaml")
    text = my_run(recipes, name=path.stem)
    if deviation := _find_deviation(recipes, is_toy=args.toy):
        print(f"# largest deviation from the paper: {deviation}")
    if args.write is None:
        print(text)
    else:
        _write_config(path, text)
    for recipe in recipes:
        console.print(_make_values_table(recipe))
    if name is not None:
        print(f"\n{format_name(name)}")
    if readme := next((recipe.readme for recipe in recipes), ""):
        print(f"\n{readme}")
    print("\n" + "\n".join(commands(recipes, path, is_toy=args.toy)))  # last: it is what to do next
    return 0


def _load_recipes(args: argparse.Namespace) -> list[Recipe]:
    """Returns system, method and scale of a command line; the last two are the system's if they are not named."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.config.recipe_groups import load_recipe, recipe_names

    if args.system in set(recipe_names("method")) - set(recipe_names("system")):
        raise ConfigError(f"{args.system} is a method and no system; run verl-agentic recipes --method {args.system}")
    system = load_recipe("system", args.system) if args.system else None
    names = {"method": args.method, "scale": args.scale}
    if system is not None:
        if system.noted("trainer") and any(names.values()):
            raise ConfigError(
                f"{system.name} runs {system.noted('trainer')}, which takes no method and no scale, got "
                f"{[name for name in names.values() if name]}; leave them out"
            )
        names = {group: name or system.noted(group) for group, name in names.items()}
    others = [load_recipe(group, name) for group, name in names.items() if name]
    return [system, *others] if system else others


def format_name(name: Name) -> str:
    """Returns the places of a name, how each is turned on, and what differs from the paper, the largest part first."""
    lines = [name.key]
    for place in name.places:
        lines.append(f"  {place.kind:12}{place.use}")
        lines += [f"{'':14}{place.summary}"] if place.summary else []
    deviations = name.deviations
    lines.append("differs from the paper, the largest deviation first:" if deviations else "no deviation is noted")
    return "\n".join([*lines, *(f"  - {text}" for text in deviations)])


def my_run(recipes: list[Recipe], *, name: str) -> str:
    """Returns the YAML of a run that combines files of the groups; its last keys are those of the README."""
    import yaml

    example = next((_find_code_block(recipe, "yaml") for recipe in recipes), "")
    example_values = {
        key: value for key, value in (yaml.safe_load(example) or {}).items() if key not in ("hydra", "defaults")
    }
    groups = [{f"agentic/{recipe.group}": recipe.name} for recipe in recipes]
    trainer = next((recipe.noted("trainer") for recipe in recipes), "")
    start = [trainer] if trainer else ["ppo_trainer", _find_base(recipes)]
    config = {
        "hydra": {"searchpath": ["pkg://verl_agentic.config"]},
        "defaults": [*start, *groups, "_self_"],
        **example_values,
    }
    config.setdefault("data", {"train_files": "data/train.parquet", "val_files": "data/test.parquet"})
    if not trainer:
        config["agentic"] = {**example_values.get("agentic", {}), "log": {"dir": "${trainer.default_local_dir}"}}
    names = {"experiment_name": name, "default_local_dir": f"runs/{name}"}
    config["trainer"] = {**names, **example_values.get("trainer", {})}
    if any(recipe.noted("model") for recipe in recipes):
        _merge(config, _SHORT_RUN)
    title = ", ".join(recipe.title for recipe in recipes)
    return f"# {title}\n{yaml.safe_dump(config, sort_keys=False, width=120)}"


def _merge(config: dict[str, Any], values: dict[str, Any]) -> None:
    """Sets values at any depth of a config."""
    for key, value in values.items():
        if isinstance(value, dict):
            _merge(config.setdefault(key, {}), value)
        else:
            config[key] = value


def commands(recipes: list[Recipe], path: Path, *, is_toy: bool = False) -> list[str]:
    """Returns the commands of a run: model, rows, checks, training. `is_toy`: on rows that this package makes."""
    config = f"--config-dir {path.parent} --config-name {path.stem}"
    if recipes[0].noted("trainer"):
        return (
            _find_code_block(recipes[0], "bash").replace(f"--config-dir . --config-name {_NAME}", config).splitlines()
        )
    environment = "VERL_PLATFORM=cpu " if _find_base(recipes) != _BASE else ""
    preparation = _find_code_block(recipes[0], "bash").partition("verl-agentic preflight")[0]
    if is_toy:
        preparation = recipes[0].noted("toy")
    elif overrides := recipes[0].noted("overrides"):
        config = f"{config} {overrides}"
    return [
        *filter(None, (recipe.noted("model") for recipe in recipes)),
        *preparation.splitlines(),
        f"{environment}verl-agentic preflight {config}",
        f"verl-agentic dryrun {config}",
        f"{environment}python -m verl.trainer.main_ppo {config}",
    ]


def _find_deviation(recipes: list[Recipe], *, is_toy: bool) -> str:
    """Returns where a run differs most: its model, its rows, or the first row of the README's table; else empty."""
    recipe = recipes[0]
    if any(other.noted("model") for other in recipes):
        return "the model, which is tiny and random"
    if is_toy:
        return f"the rows, which the environment {recipe.value('agentic.env')} makes"
    table = re.search(
        r"^\| where ours differs \|.*\n\|[-|]+\n\| (.*?) \| (.*?) \| (.*?) \|$", recipe.readme, re.MULTILINE
    )
    return f"{table[1]}: {table[2]}; here: {table[3]}" if table else recipe.noted("differs")


def _find_base(recipes: list[Recipe]) -> str:
    return next((recipe.noted("base") for recipe in recipes if recipe.noted("base")), _BASE)


def _find_code_block(recipe: Recipe, language: str) -> str:
    """Returns the first block of code in a language of the README; empty if there is none."""
    match = re.search(rf"^```{language}\n(.*?)^```", recipe.readme, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def _write_config(path: Path, text: str) -> None:
    from verl_agentic.base.errors import ConfigError

    if path.exists():
        raise ConfigError(f"--write needs a new file, got {path}, which exists; name another, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def _print_groups(console: Console, *, is_short: bool) -> None:
    """Prints one line for each file of each group. The short list has some systems, and no methods of one system."""
    from rich.table import Table

    from verl_agentic.config.recipe_groups import GROUPS, load_recipe, recipe_names

    systems = recipe_names("system")
    for group in GROUPS:
        names = recipe_names(group)
        if is_short and group == "system":
            names = [name for name in names if name in _SYSTEMS]
        elif is_short and group == "method":
            names = [name for name in names if name not in systems]
        table = Table(title=f"agentic/{group}", title_justify="left", box=None, pad_edge=False)
        table.add_column("name", no_wrap=True, style="bold")
        table.add_column("")
        for name in names:
            recipe = load_recipe(group, name)
            table.add_row(name, f"{recipe.title}: {recipe.summary}")
        console.print(table, "")
    if is_short:
        console.print(f"--all lists all {len(systems)} systems and the methods that belong to one")
    console.print("verl-agentic recipes SYSTEM [--method NAME] [--scale NAME] [--write FILE] shows a combination")


def _make_values_table(recipe: Recipe) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"\nagentic/{recipe.group}: {recipe.name}", title_justify="left", box=None, pad_edge=False)
    for column in ("key", "value", "source"):
        table.add_column(column)
    for value in recipe.values:
        table.add_row(*map(Text, (value.key, value.text, value.source)))
    return table
