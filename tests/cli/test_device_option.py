"""`--device` of all commands: a GPU where there is one, and an error with what to do where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from transformers import AutoConfig

from verl_agentic.cli import main
from verl_agentic.cli.options.device_option import dtype_on
from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.log_ratio import LogRatio

CHAT = ["--env", "python_math", "--endpoint", "http://127.0.0.1:9", "--model", "m"]


class ReachedModelError(Exception):
    pass


@pytest.fixture
def commands(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    monkeypatch.chdir(tmp_path)
    folder = str(tiny_model)
    phi = ["--tokenizer", folder, "--select", "--phi", folder, "--reference", folder]
    return {
        "quickstart": ["quickstart", "--out", str(tmp_path / "out")],
        "play": ["play", "--model", folder, "1+1"],
        "serve": ["serve", "--model", folder, "--port", "0"],
        "evaluate": ["evaluate", *CHAT, *phi],
        "probe": ["model", "probe", folder, "--env", "python_math"],
    }


@pytest.mark.parametrize("name", ["quickstart", "play", "serve", "evaluate", "probe"])
def test_a_gpu_that_is_not_there_is_an_error_that_says_what_to_do(
    name: str, commands: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, advice in ((None, "install a build of torch with CUDA"), ("13.0", "check nvidia-smi")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert main([*commands[name], "--device", "cuda"]) == 2
        error = capsys.readouterr().err
        assert "--device cuda needs a GPU" in error and advice in error and "--device cpu" in error


@pytest.mark.parametrize("name", ["play", "serve", "evaluate", "probe"])
@pytest.mark.parametrize(("has_gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_a_model_runs_on_the_gpu_if_there_is_one(
    name: str, has_gpu: bool, device: str, commands: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def note(*_: Any, **engine: Any) -> Any:
        seen.append(engine)
        raise ReachedModelError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(InferenceEngine, "from_pretrained", note)
    monkeypatch.setattr(LogRatio, "from_pretrained", note)
    with pytest.raises(ReachedModelError):
        main(commands[name])
    assert [engine["device"] for engine in seen] == [device]


def test_a_gpu_computes_in_the_type_of_the_files(tiny_model: Path, tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_model)
    for dtype in (torch.bfloat16, torch.float32):
        config.dtype = dtype
        config.save_pretrained(tmp_path)
        assert dtype_on("cuda", tmp_path) == str(dtype).removeprefix("torch.")
        assert dtype_on("cpu", tmp_path) == "float32"


def test_a_device_without_a_model_here_is_refused(
    commands: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["evaluate", *CHAT], [*commands["probe"], "--endpoint", "http://127.0.0.1:9"]):
        assert main([*command, "--device", "cpu"]) == 2
        assert "--device is for" in capsys.readouterr().err
