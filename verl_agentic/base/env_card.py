"""Description of an environment package, which `verl-agentic env list` shows without its dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verl_agentic.base.errors import MissingDependencyError


@dataclass(frozen=True, kw_only=True)
class EnvCard:
    """Description of an environment package. The package exports it as `CARD`."""

    kind: str
    """Kind of environment, such as `games` or `web`."""
    size: str
    """Number of tasks, such as `1,000 rows`, or `unlimited` if they are generated."""
    licence: str = "Apache-2.0"
    """Licence of the data; `yours` where the user brings the data."""
    extra: str = ""
    """Extra of `verl-agentic` that installs the dependencies. Empty: none is needed."""
    needs: str = ""
    """Data or server that the user must have. Empty: works offline."""
    max_scripted: float = 0.0
    """Highest mean outcome that a policy without a model may have: constant answers, dumps of all tool outputs, loops,
    harmless calls. Above 0 for a task that can be solved by luck, with the reason in the package's README."""
    tasks: tuple[str, ...] = ()
    """Names of the single environments in the package; `<package>/<name>` is an id of its own. `make_rows` then takes
    `task=`, and each of its rows names its task, so that `make_env` needs no argument."""


def read_tasks(module_file: str) -> tuple[str, ...]:
    """Returns the names in `tasks.txt` beside a module, one in each line: known without the dependency."""
    return tuple((Path(module_file).parent / "tasks.txt").read_text(encoding="utf-8").split())


@contextmanager
def needs_extra(extra: str, *, what: str, then: str = "") -> Iterator[None]:
    """Wraps the imports of an optional dependency.

    Args:
        extra: the extra of `verl-agentic` that installs it.
        what: the part of the package that needs it, for the error.
        then: a further command, for what no extra can install.

    Raises:
        MissingDependencyError: an import in the block failed.
    """
    try:
        yield
    except ImportError as cause:
        raise MissingDependencyError(
            f"{what} needs {cause.name}, got {cause}; pip install 'verl-agentic[{extra}]'{then and f', then {then}'}"
        ) from cause
