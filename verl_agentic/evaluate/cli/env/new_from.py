"""Writes the files of an environment around one with gymnasium's interface (`verl-agentic env new --from`)."""

from __future__ import annotations

import functools
import inspect
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.base.registry import load_address

FILES = ("__init__.py", "env.py", "README.md")
_BY_CONFIG = {
    "verifiers": "agentic.env=verifiers +agentic.env_config.taskset={place}",
    "openenv": "agentic.env=openenv +agentic.env_config.url={place}",
}
"""Bridge -> the keys that choose a foreign environment without any code."""
_NUM_RESETS = 4  # with different seeds, to see whether the first observation shows them
_INIT = '''\
"""{about}"""

from .env import demonstrator, gold, make_env, make_rows

__all__ = ["demonstrator", "gold", "make_env", "make_rows"]
'''
_ENV = '''\
"""The environment `{env_id}`: each turn of the policy is a call of the tool `act`, its result the next observation."""

from __future__ import annotations

from typing import Any

{imports}

from verl_agentic.bridges.gymnasium.own_package import OwnPackage


def make() -> Any:
    """Returns a new environment; every episode resets its own one with the seed of its row."""
    return {call}


def show(observation: Any) -> str:
    """Returns an observation as the policy reads it."""
    return str(observation)


def expert(env: Any) -> Any:
    """Returns the next action of a solution, from the unwrapped environment `env`; None without one."""
    raise NotImplementedError


_PACKAGE = OwnPackage(
    name="{env_id}",
    make=make,
    actions={actions},  # text of the policy -> action; None: the text itself
    show=show,
    instruction="",  # the task in words, unless the first observation says it
    full_reward=1.0,  # sum of the rewards from which on an episode is solved
    expert=None,  # write `expert` above and put it here: solutions and demonstrations come from it
    is_hidden={is_hidden},  # whether the first observation does not show what the seed chose
)
make_env, make_rows = _PACKAGE.make_env, _PACKAGE.make_rows
gold, demonstrator = _PACKAGE.gold, _PACKAGE.demonstrator  # None without an expert
'''
_README = """\
# {env_id}

{about}

| | |
|---|---|
| Prompt | the instruction in `env.py`, the actions, and the first observation |
| Tool | `act(action)`: {action_words} |
| Outcome | 1 when the episode has ended and its rewards sum to `full_reward` or more, else 0 |
| Rows | `make_rows(split=..., count=..., seed=...)`: seeds of `reset`; train and test share none |

```bash
verl-agentic env play ./{env_id}
verl-agentic env validate ./{env_id}    # needs the expert in env.py
verl-agentic prepare ./{env_id} --out data --train 1000 --test 100
```

In a run: `agentic.env=./{env_id}`.
"""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """An environment with gymnasium's interface, and the Python that makes it."""

    make: Callable[[], Any]
    imports: str
    """Line of Python that makes `call` work in the written package."""
    call: str
    """Python of a new environment."""
    file: Path | None = None
    """Its file, which is copied; None: it is installed."""


def write_around(folder: Path, env_id: str, source: str) -> tuple[str, ...]:
    """Writes the files around the environment at `source`; returns their names.

    Raises:
        ConfigError: there is no such environment, its actions are neither texts nor numbers, or a config chooses it
            without any code.
        MissingDependencyError: gymnasium is not installed.
    """
    origin = _find_source(source, env_id)
    actions, observations = _inspect(origin.make, source)
    values = {
        "env_id": env_id,
        "about": f"The environment {source} of gymnasium's interface, in turns of text.",
        "imports": origin.imports,
        "call": origin.call,
        "actions": actions,
        "action_words": "a text" if actions == "None" else "a number",
        "is_hidden": len(set(map(str, observations))) == 1,
    }
    folder.mkdir(parents=True)
    for name, text in zip(FILES, (_INIT, _ENV, _README), strict=True):
        (folder / name).write_text(_fill(text, values), encoding="utf-8")
    if not isinstance(observations[0], str):
        print(f"its observations are no texts, got {observations[0]!r:.100}; write `show` in {folder / 'env.py'}")
    if origin.file is None:
        return FILES
    shutil.copy(origin.file, folder / "world.py")
    return (*FILES, "world.py")


def _find_source(source: str, env_id: str) -> _Source:
    scheme, _, place = source.partition(":")
    if scheme in _BY_CONFIG:
        keys = _BY_CONFIG[scheme].format(place=place)
        raise ConfigError(f"an environment of {scheme} needs no code, got {source!r}; set {keys}, see docs/bridges.md")
    with needs_extra("gymnasium", what="`env new --from`"):
        import gymnasium
    if scheme == "gymnasium":
        call = f"gymnasium.make({place!r}, disable_env_checker=True)"
        make = functools.partial(gymnasium.make, place, disable_env_checker=True)
        return _Source(make=make, imports="import gymnasium", call=call)
    make = load_address(source, what="environment") if ":" in source else None
    if not callable(make):
        raise ConfigError(
            f"--from needs gymnasium:ID, module:Class or file.py:Class, got {source!r}; name the environment so"
        )
    module, _, name = source.rpartition(":")
    if module.endswith(".py"):
        file = Path(inspect.getfile(make))
        return _Source(make=make, imports=f"from .world import {name}", call=f"{name}()", file=file)
    if module.partition(".")[0] == env_id:
        raise ConfigError(
            f"the environment would hide its own module, got {env_id!r} for {source!r}; choose another ID"
        )
    return _Source(make=make, imports=f"from {module} import {name}", call=f"{name}()")


def _inspect(make: Callable[[], Any], source: str) -> tuple[str, list[Any]]:
    """Returns the actions, as Python code of `OwnPackage.actions`, and first observations of different seeds."""
    from gymnasium import spaces

    try:
        env = make()
        space = env.action_space
        observations = [env.reset(seed=seed)[0] for seed in range(_NUM_RESETS)]
        env.close()
    except Exception as cause:
        raise ConfigError(
            f"the environment {source!r} cannot be made and reset, got {describe_cause(cause)}; fix it first"
        ) from cause
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return f"{{str(number): number for number in range({start}, {start + int(space.n)})}}", observations
    if isinstance(space, spaces.Text):
        return "None", observations
    raise ConfigError(
        f"actions must be texts (spaces.Text) or numbers (spaces.Discrete), got {space} of {source!r}; wrap the "
        "environment"
    )


def _fill(text: str, values: Mapping[str, Any]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
