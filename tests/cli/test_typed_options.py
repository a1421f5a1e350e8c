"""Fields of a class become options, and parsed options an object of the class."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Literal

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.cli.options.typed_options import BriefParser, Options, declare, typed_command


class SharedOptions(Options):
    GROUP = ("shared", "for several commands")
    jobs: int = declare("use N processes", 2, min=1, metavar="N")
    names: Sequence[str] = declare("take this name", ())


class CommandOptions(SharedOptions):
    file: Path = declare("read this file", is_required=True, is_positional=True)
    shape: Literal["a", "b"] = declare("write this shape", "a", flags=["--as"])
    share: float | None = declare("take this share", above=0)
    span: tuple[int, int] | None = declare("take this span", type=lambda text: tuple(map(int, text.split(":"))))
    counts: Sequence[int] = declare("take these counts", (), nargs="+", min=0)
    is_quiet: bool = declare("print nothing", False)


def run(words: str, *, traceback: bool = False) -> CommandOptions:
    options: list[CommandOptions] = []
    add_arguments, work = typed_command(CommandOptions, lambda given: options.append(given) or 0)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert work(argparse.Namespace(**vars(parser.parse_args(words.split())), traceback=traceback, command="x")) == 0
    return options[0]


def test_an_option_has_the_type_of_its_field() -> None:
    words = "f --as b --share 0.5 --span 1:3 --counts 0 4 --is-quiet --jobs 3 --names x --names y"
    assert vars(run(words, traceback=True)) == {
        "file": Path("f"), "shape": "b", "share": 0.5, "span": (1, 3), "counts": [0, 4], "is_quiet": True, "jobs": 3,
        "names": ["x", "y"], "traceback": True,
    }  # fmt: skip


def test_an_option_that_is_left_out_has_its_default() -> None:
    first, second = run("f"), run("f")
    assert (first.shape, first.share, first.span, first.is_quiet, first.jobs) == ("a", None, None, False, 2)
    assert first.names == first.counts == [] and first.names is not second.names
    with pytest.raises(FrozenInstanceError):
        first.jobs = 3  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("words", ["", "f --jobs 0", "f --as c", "f --share 0", "f --counts -1", "f --names"])
def test_a_value_that_a_field_cannot_have_is_wrong_use(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert ended.value.code == 2


@pytest.mark.parametrize("values", [{"jobs": 0}, {"shape": "c"}, {"names": "x"}, {"share": "1"}])
def test_code_cannot_make_options_that_the_command_line_refuses(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        CommandOptions(file=Path("f"), **values)


def test_the_help_has_the_options_of_the_command_before_groups_of_others() -> None:
    parser = argparse.ArgumentParser()
    typed_command(CommandOptions, lambda options: 0)[0](parser)
    text = parser.format_help()
    assert text.index("--is-quiet") < text.index("shared:\n  for several commands\n") < text.rindex("--jobs N")
    assert "--traceback" not in text


class BriefOptions(CommandOptions):
    COMMON = ("jobs",)


def test_a_brief_help_has_common_and_required_options_alone_and_names_the_way_to_all() -> None:
    parser = BriefParser(prog="x")
    subparser = parser.add_subparsers().add_parser("y")
    typed_command(BriefOptions, lambda options: 0)[0](subparser)
    text = subparser.format_help()
    assert "--jobs" in text and "file" in text
    assert not [flag for flag in ("--as", "--share", "--span", "--counts", "--is-quiet", "--names") if flag in text]
    assert text.endswith("\nShow 6 more options: x y --help all\n")
    assert subparser.parse_args(["f", "--share", "0.5"]).share == 0.5
