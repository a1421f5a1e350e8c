"""The command line is quick, because it imports nothing that it does not need."""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from verl_agentic import cli
from verl_agentic.base import errors
from verl_agentic.cli.options.typed_options import BriefParser

_HEAVY = ("torch", "verl", "ray", "transformers", "numpy")
_HELP_CPU_S = 0.2
_VERBS = {
    *("accept", "add", "allow", "answer", "ask", "audit", "check", "close", "compare", "compute"),
    *("evaluate", "export", "give", "label", "leave", "let", "list", "listen", "load", "make"),
    *("keep", "name", "override", "parse", "pass", "play", "print", "read", "refuse", "reject"),
    *("repeat", "require", "run", "sample", "save", "score", "send", "serve", "set", "show"),
    *("convert", "divide", "exit", "fetch", "find", "limit", "share", "subtract"),
    *("shuffle", "stop", "take", "test", "train", "try", "use", "wait", "write"),
}
_MAIN = ("-c", "from verl_agentic.cli import main; raise SystemExit(main())")


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd, check=False
    )


def _imports(process: subprocess.CompletedProcess[str]) -> set[str]:
    """Returns the top-level packages of a run with `-X importtime`."""
    names = [line.rpartition("|")[2].strip() for line in process.stderr.splitlines() if line.startswith("import time:")]
    return {name.split(".")[0] for name in names}


def test_help_names_every_command_on_one_screen_and_imports_nothing_heavy(tmp_path: Path) -> None:
    process = _python("-X", "importtime", *_MAIN, "--help", cwd=tmp_path)
    assert process.returncode == 0
    lines = process.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    for heading, commands in cli.GROUPS.items():
        start = lines.index(f"{heading}:")
        assert [line.split() for line in lines[start + 1 : start + 1 + len(commands)]] == [
            [name, *line.split()] for name, line in commands.items()
        ]
    assert len(cli.GROUPS["Main path"]) == 8
    imported = _imports(process)
    assert "argparse" in imported  # the list was read
    assert not imported & {*_HEAVY, "rich", "psutil"}


def test_without_arguments_the_overview_is_shown_and_versions_are_those_of_the_packages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == 0
    assert "Main path:" in capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == ["verl-agentic", version("verl-agentic"), "verl", version("verl")]


def test_help_takes_less_than_a_fifth_of_a_second_of_cpu_time(tmp_path: Path) -> None:
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _python(*_MAIN, "--help", cwd=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert 0 < min(taken) < _HELP_CPU_S, taken


def test_importing_the_package_imports_neither_torch_nor_verl(tmp_path: Path) -> None:
    process = _python(
        "-X", "importtime", "-c", "import verl_agentic, verl_agentic.cli, verl_agentic.base.errors", cwd=tmp_path
    )
    assert process.returncode == 0
    imported = _imports(process)
    assert "verl_agentic" in imported
    assert not imported & set(_HEAVY)


@pytest.mark.parametrize("arguments", [["nonsense"], ["doctor", "--nonsense"]])
def test_wrong_use_says_so_and_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert "usage: verl-agentic" in shown
    assert ("nonsense" if arguments else "COMMAND") in shown


def test_an_unknown_command_names_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["qickstart"])
    assert "got 'qickstart'; did you mean 'quickstart'?" in capsys.readouterr().err


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: verl-agentic {command}")
    assert "--" in shown.replace("--help", "")  # its own options, too


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yields the parsers of all commands and subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield subparser
                yield from _commands(subparser)


@pytest.mark.parametrize(
    "words",
    [["evaluate"], ["data", "make"], ["data", "export"], ["model", "probe"], ["prepare"], ["quickstart"], ["view"]],
)
def test_help_shows_at_most_five_options_that_are_not_required_and_help_all_shows_all(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for option in (["--help"], ["-h", "all"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, *option])
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    brief, full = ({line.split()[0] for line in text.splitlines() if line.startswith("  -")} for text in shown)
    parser = BriefParser()
    cli._load_command(words[0]).add_arguments(parser)
    (parser,) = [each for each in (parser, *_commands(parser)) if each.prog.split()[1:] == words[1:]]
    required = {action.option_strings[0] for action in parser._actions if action.option_strings and action.required}
    options = {action.option_strings[0] for action in parser._actions if action.option_strings}
    assert required < {flag.rstrip(",") for flag in brief} and len(brief) <= len(required) + 6  # and --help
    assert {flag.rstrip(",") for flag in full} == options
    assert f"Show {len(full) - len(brief)} more options: verl-agentic {' '.join(words)} --help all" in shown[0]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_and_option_has_a_help_that_starts_with_a_verb(command: str) -> None:
    parser = argparse.ArgumentParser(prog=command, description=cli.COMMANDS[command])
    cli._load_command(command).add_arguments(parser)
    helps = {command: parser.description}
    for each in (parser, *_commands(parser)):
        helps |= {f"{each.prog}:": each.description}
        for action in each._actions:
            if isinstance(action, argparse._SubParsersAction):
                helps |= {choice.dest: choice.help for choice in action._choices_actions}
            else:
                helps[f"{each.prog} {action.dest}"] = action.help
    wrong = {name: text for name, text in helps.items() if not text or text.split()[0].strip(",").lower() not in _VERBS}
    assert not wrong


def test_an_error_of_ours_is_one_line_and_a_foreign_one_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from verl_agentic.checks.cli import doctor

    def fail(error: BaseException) -> None:
        def run(_: object) -> int:
            raise error

        monkeypatch.setattr(doctor, "run", run)

    fail(errors.ConfigError("x must be positive, got 0; raise it"))
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "ConfigError: x must be positive, got 0; raise it\n"
    fail(PermissionError(13, "Permission denied", "/root/run"))
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "PermissionError: Permission denied, got '/root/run'; check the path\n"
    fail(KeyboardInterrupt())
    assert cli.main(["doctor"]) == 130
    fail(OSError("a bug"))
    with pytest.raises(OSError, match="a bug"):
        cli.main(["doctor"])


def test_the_installed_command_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("verl-agentic")
    if not script.is_file():
        pytest.skip("verl_agentic is not installed in this environment")
    process = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert process.returncode == 0
    assert process.stdout.startswith("usage: verl-agentic")


def test_the_module_is_the_command_with_its_exit_codes(tmp_path: Path) -> None:
    for arguments in (["--help"], ["nope"], ["env", "list", "--unknown"]):
        module, command = (
            _python(*program, *arguments, cwd=tmp_path) for program in (("-m", "verl_agentic.cli"), _MAIN)
        )
        assert (module.returncode, module.stdout, module.stderr) == (command.returncode, command.stdout, command.stderr)


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["preflight", "dryrun"])
def test_options_may_stand_between_overrides(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(cli._load_command(command), "run", lambda parsed: seen.append(parsed) or 0)
    overrides, name = ["a=b", "+c.d=-1", "~e"], ("--config-name", "grpo")
    for order in itertools.permutations([("--json",), name, *((override,) for override in overrides)]):
        assert cli.main([command, *itertools.chain.from_iterable(order)]) == 0
        given = [words[0] for words in order if words[0] in overrides]
        assert seen[-1].overrides == given and seen[-1].json and seen[-1].config_name == "grpo"


@pytest.mark.parametrize(
    "wrong", [["preflight", "a=b", "--jsn", "c=d"], ["doctor", "a=b"], ["tiny-model", "--out", "m", "x"]]
)
def test_what_no_command_takes_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(wrong)
    assert ended.value.code == 2 and "unrecognized arguments" in capsys.readouterr().err
