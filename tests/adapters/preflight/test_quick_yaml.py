"""libyaml reads configurations as OmegaConf's own parser does, and leaves the messages of errors to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import verl.trainer
import yaml
from omegaconf import OmegaConf

import verl_agentic
from verl_agentic.verl.extensions.preflight.quick_yaml import quick_yaml

_FOLDERS = (Path(verl.trainer.__path__[0]) / "config", Path(verl_agentic.__path__[0]) / "config")
_VALUES = (
    "a: 1e-6\nb: .5\nc: 1_000\nd: 2020-01-01\ne: yes\nf: ~\ng: [1, '2', 3.0]\nh: ${a}\ni: 0o7\nj: 1:30\nk: |\n  x\n"
)


@pytest.mark.slow
def test_values_are_those_of_the_slower_parser(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(_VALUES)
    files = [tmp_path / "values.yaml", *(file for folder in _FOLDERS for file in folder.rglob("*.yaml"))]
    assert len(files) > 50
    slow = [repr(OmegaConf.to_container(OmegaConf.load(file))) for file in files]
    with quick_yaml():
        quick = [repr(OmegaConf.to_container(OmegaConf.load(file))) for file in files]
    assert quick == slow


def test_libyaml_reads_within_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the parser that is written in Python")

    monkeypatch.setattr("yaml.scanner.Scanner.fetch_more_tokens", refuse)
    with quick_yaml():
        assert OmegaConf.create("a: 1") == {"a": 1}
    with pytest.raises(AssertionError):
        OmegaConf.create("a: 1")


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: b: c\n", "a: [1\n", "a: !!python/none x\n", "- a\nb: 1\n"])
def test_errors_are_those_of_the_slower_parser(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(yaml.YAMLError) as slow:
        OmegaConf.load(file)
    with quick_yaml(), pytest.raises(yaml.YAMLError) as quick:
        OmegaConf.load(file)
    assert (type(quick.value), str(quick.value)) == (type(slow.value), str(slow.value))
