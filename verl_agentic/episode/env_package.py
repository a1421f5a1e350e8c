"""Packages of environments, found by the environment's id."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from verl_agentic.base.env import Env, EnvRow
from verl_agentic.base.env_card import EnvCard
from verl_agentic.base.errors import ConfigError, boundary
from verl_agentic.base.paths import envs_dir
from verl_agentic.base.places.installed_envs import installed_envs
from verl_agentic.base.registry import import_file, import_place
from verl_agentic.base.settings import did_you_mean
from verl_agentic.base.types import Message
from verl_agentic.rewards.sample import Sample


@dataclass(frozen=True, kw_only=True)
class EnvPackage:
    """Contents of an environment's package."""

    env_id: str
    folder: Path
    make_env: Callable[..., Env]
    """`make_env(row, **config)`: the environment of one episode."""
    make_rows: Callable[..., list[EnvRow]] | None
    """`make_rows(split=, count=, seed=, **options)`: different rows, the same ones for the same arguments."""
    gold: Callable[[EnvRow], Callable[[Sequence[Message]], Message]] | None
    """`gold(row)`: the solution, as a function of the conversation so far to the next assistant message."""
    demonstrator: Callable[..., Callable[[Sequence[Message]], Message | str]] | None
    """`demonstrator(row, rng=)`: demonstrations of mixed quality for a warm start; a text stands as it is."""
    describe: Callable[[Sample], str | None] | None = None
    """`describe(sample)`: the task that an episode has done by where it ended, for hindsight; None where there is none.
    Environments whose answers are right or wrong (maths, code) have no such function."""
    check_row: Callable[[EnvRow], None] | None = None
    """`check_row(row)`: raises an error for a row whose episodes cannot start on this machine, without starting one."""
    card: EnvCard | None = None
    """`CARD`: what `verl-agentic env list` shows."""

    def configured(self, config: Mapping[str, Any]) -> Callable[..., Env]:
        """Returns `make_env` with its keyword arguments. Raises ConfigError if it takes no such arguments."""
        signature = inspect.signature(self.make_env)
        try:
            signature.bind(None, **config)
        except TypeError as cause:
            raise ConfigError(
                f"the arguments of environment {self.env_id!r} do not fit, got {dict(config)}: {cause}; "
                f"it has make_env{signature}"
            ) from cause
        return partial(self.make_env, **config) if config else self.make_env


_BRIDGES = Path(__file__).parents[1] / "bridges"


def load_env(env_id: str, /, **config: Any) -> Callable[..., Env]:
    """Returns `make_env` of an environment with its keyword arguments; see `load_env_package`."""
    return load_env_package(env_id).configured(config)


def load_env_package(env_id: str) -> EnvPackage:
    """Returns an environment's package.

    Args:
        env_id: the name of a bundled environment (`python_math`) or of an installed one (its entry point in the group
            `verl_agentic.environments`), or of one of its tasks (`textarena/Wordle-v0`); the path of a folder that
            holds a package (`./my_env`); an importable module (`my_package.my_env`); or the place of `make_env` under
            any name (`package.module:function`, `path/file.py:function`). What else the package offers is beside it.

    Raises:
        ConfigError: nothing is found there, it does not import, or it has no `make_env`.
    """
    if _names_task(env_id):
        name, _, task = env_id.partition("/")
        return _one_task(load_env_package(name), task)
    place, _, function = _find_address(env_id).rpartition(":")
    module = import_place(place, f"environment {env_id!r}") if place else _env_module(env_id)
    name = function if place else "make_env"
    make_env = getattr(module, name, None)
    if not callable(make_env) or module.__file__ is None:
        source = module.__file__ or f"a folder without an __init__.py: {list(module.__path__)}"
        raise ConfigError(
            f"environment {env_id!r} has no function {name}(row, **config), got {source}; define it in its __init__.py"
        )
    return EnvPackage(
        env_id=env_id,
        folder=Path(module.__file__).parent,
        make_env=cast("Callable[..., Env]", make_env),
        make_rows=getattr(module, "make_rows", None),
        gold=getattr(module, "gold", None),
        demonstrator=getattr(module, "demonstrator", None),
        describe=getattr(module, "describe", None),
        check_row=getattr(module, "check_row", None),
        card=getattr(module, "CARD", None),
    )


def choose_env(row_env: str | None, run_env: str | None, *, rows: str = "the row") -> str:
    """Returns the id of a row's environment: that of the run, or of the row if the run has none.

    Args:
        row_env: the row's `extra_info.env`.
        run_env: `agentic.env`.
        rows: the rows' name in errors.

    Raises:
        ConfigError: neither is set, or both are and name different environments.
    """
    if not row_env and not run_env:
        raise ConfigError(
            f"no environment chosen: {rows} has no extra_info.env and agentic.env is not set; set agentic.env=NAME, "
            "which `verl-agentic prepare NAME` prints"
        )
    if row_env and run_env and row_env != run_env and _locate(row_env) != _locate(run_env):
        raise ConfigError(
            f"two environments for {rows}, got extra_info.env={row_env!r} and agentic.env={run_env!r}; write the rows "
            "again with `verl-agentic prepare`, which leaves the environment to the config, or set agentic.env=null to "
            "use that of the rows"
        )
    return str(run_env or row_env)


def absolute_id(env_id: str) -> str:
    """Returns an id with its path made absolute. Names of environments and modules stay as they are."""
    path, colon, function = env_id.rpartition(":") if ":" in env_id else (env_id, "", "")
    is_path = path.endswith(".py") if colon else "/" in path or path.startswith(".")
    if not is_path or _names_task(env_id):
        return env_id
    return f"{Path(path).resolve()}{colon}{function}"


def _locate(env_id: str) -> str:
    """Returns where an environment is, the same for all of its ids, without importing it."""
    return str(_bundled_folder(env_id) or absolute_id(env_id))


def _bundled_folder(env_id: str) -> Path | None:
    """Returns the folder of a bundled environment, also by the id of one of its tasks."""
    name = env_id.partition("/")[0]
    folders = (folder / name for folder in (envs_dir(), _BRIDGES) if name.isidentifier())
    return next((folder.resolve() for folder in folders if (folder / "__init__.py").is_file()), None)


def known_envs() -> list[str]:
    """Returns the names of the bundled environments; `EnvCard.tasks` has those of their tasks.

    `installed_envs` has those that other packages install. A bundled one hides an installed one of its name.
    """
    return sorted(path.parent.name for folder in (envs_dir(), _BRIDGES) for path in folder.glob("*/__init__.py"))


def _names_task(env_id: str) -> bool:
    """Tells whether an id is `NAME/TASK` of a bundled or an installed environment; a folder there hides the latter."""
    name, _, task = env_id.partition("/")
    if not task or name in ("", ".", ".."):
        return False
    return name in known_envs() or (name in installed_envs() and not Path(env_id).exists())


def _find_address(env_id: str) -> str:
    """Returns `module:function` of an installed environment; another id unchanged, also that of a bundled one."""
    if ":" in env_id or "/" in env_id or env_id.startswith(".") or env_id in known_envs():
        return env_id
    env = installed_envs().get(env_id)
    return env_id if env is None else f"{env.module}:{env.function}"


def _one_task(package: EnvPackage, task: str) -> EnvPackage:
    """Returns the package with rows of one task only."""
    tasks = package.card.tasks if package.card is not None else ()
    if task not in tasks or package.make_rows is None:
        raise ConfigError(
            f"environment {package.env_id!r} has no task {task!r}; `verl-agentic env list {package.env_id}` lists its "
            f"{len(tasks)} tasks{did_you_mean(task, tasks)}"
        )
    return replace(package, env_id=f"{package.env_id}/{task}", make_rows=partial(package.make_rows, task=task))


def _env_module(env_id: str) -> ModuleType:
    is_path = "/" in env_id or env_id.startswith(".")
    folder = Path(env_id).resolve() if is_path else envs_dir() / env_id
    with boundary(ConfigError, f"importing environment {env_id!r}"):
        if (folder / "__init__.py").is_file():
            return import_file(folder / "__init__.py", name=f"verl_agentic_env_{folder.name}")
        if not is_path and (_BRIDGES / env_id / "__init__.py").is_file():
            return importlib.import_module(f"verl_agentic.bridges.{env_id}")
        if not is_path and importlib.util.find_spec(env_id.split(".")[0]) is not None:
            return importlib.import_module(env_id)
    is_here = (Path(env_id) / "__init__.py").is_file()
    names = [*known_envs(), *sorted(installed_envs())]
    hint = f"; did you mean './{env_id}'?" if is_here else did_you_mean(env_id, names)
    if is_path:
        fault = "without an __init__.py" if folder.is_dir() else "which does not exist"
        raise ConfigError(
            f"no environment at {env_id!r}, got the folder {folder}, {fault}; `verl-agentic env new NAME` writes one"
        )
    raise ConfigError(
        f"unknown environment, got {env_id!r}; use one of {names}, the path of a folder with an __init__.py, "
        f"an importable module, package.module:function or path/file.py:function{hint}"
    )
