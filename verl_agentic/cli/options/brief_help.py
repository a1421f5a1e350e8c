"""Help of a command that shows its usual options; `--help all` shows all of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any


class RareHelp(str):
    """Help of an option that only `--help all` shows."""


class _BriefFormatter(argparse.HelpFormatter):
    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        super().add_usage(usage, [action for action in actions if not _is_rare(action)], groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        if not _is_rare(action):
            super().add_argument(action)


class BriefParser(argparse.ArgumentParser):
    """Parser whose help leaves out rare options and names the command that shows them. So do its subcommands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _BriefFormatter, **options})

    def format_help(self) -> str:
        """Returns the help."""
        num_rare = sum(map(_is_rare, self._actions))
        ending = f"\nShow {num_rare} more options: {self.prog} --help all\n" if num_rare else ""
        return super().format_help() + ending


def _is_rare(action: argparse.Action) -> bool:
    return isinstance(action.help, RareHelp)
