"""Scaffolds: the prompt, the tools, the format of observations and the limits of a coding agent, as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from verl_agentic import ConfigError
from verl_agentic.base.settings import Settings, did_you_mean, read_settings, setting

_FOLDER = Path(__file__).parent / "scaffolds"


class ToolForm(Settings):
    """One tool of a scaffold, as the policy sees it."""

    kind: Literal["command", "shell", "editor", "search", "submit"]
    """`command`: each call is a new shell. `shell`: one shell for the episode. `submit` ends the episode."""
    name: str
    description: str
    argument: str = "command"
    """Name of the argument of a `command` or `shell`."""
    undo: bool = False
    """The editor has the command `undo_edit`."""


def _read_tools(values: Any, *, name: str) -> tuple[ToolForm, ...]:
    if not isinstance(values, list):
        raise ConfigError(f"{name} must be a list of tools, got {values!r}; see scaffolds/editor.yaml")
    return tuple(read_settings(ToolForm, value, section=f"{name}[{index}]") for index, value in enumerate(values))


class Scaffold(Settings):
    """The way in which an agent works on a repository."""

    source: str
    """The system whose contract it is."""
    system: str
    """The system message."""
    task: str
    """The first message of the user, with `{root}` and `{issue}`."""
    tools: Sequence[ToolForm] = setting(read=_read_tools)
    observation: str = "{output}"
    """The result of a command, with `{output}`, `{stdout}`, `{stderr}` and `{exit_code}`."""
    timeout_observation: str
    """The result of a command that was stopped, also with `{timeout_s}`."""
    no_output: str = ""
    """Shown instead of an empty output."""
    max_output_chars: int = setting(10_000, min=100)
    """Longer outputs keep their head and their tail."""
    command_timeout_s: float = setting(60.0, above=0)
    submit_marker: str = ""
    """First line of the output of a successful command that submits; empty if a tool does."""
    review: str = ""
    """Answer to the first submission, with `{diff}`; empty: the first submission ends the episode."""
    refused_commands: Sequence[str] = ()
    """First words that a command must not have."""
    max_calls_per_turn: int = setting(0, min=0)
    """More calls of a turn are answered with an error; 0: any number."""
    shows_steps_left: bool = False
    """Observations end with the number of steps that are left."""
    max_steps: int = setting(50, min=1)
    """Turns of an episode."""
    max_turns_without_call: int = setting(3, min=1)
    """Turns in a row without a call, after which the episode ends."""

    def check_together(self) -> None:
        if not self.submit_marker and not any(tool.kind == "submit" for tool in self.tools):
            raise ConfigError("a scaffold needs a tool of kind submit, or a submit_marker, got neither; add one")


def load_scaffold(name: str) -> Scaffold:
    """Returns a bundled scaffold, or the one of a YAML file.

    Raises:
        ConfigError: there is none of this name, or its keys are wrong.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    if not path.is_file():
        names = sorted(path.stem for path in _FOLDER.glob("*.yaml"))
        raise ConfigError(
            f"unknown scaffold, got {name!r}; use one of {names} or the path of a YAML file{did_you_mean(name, names)}"
        )
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    return read_settings(Scaffold, values, section=str(path))
