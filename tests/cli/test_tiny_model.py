"""`verl-agentic tiny-model`: writes the folder, says what it wrote, and answers wrong use with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_agentic.cli import main


def test_it_writes_a_model_and_says_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny-model", "--out", str(tmp_path / "m"), "--preset", "1m", "--seed", "5"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'm'}: 0.99 M parameters, preset 1m, seed 5\n"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        p.name for p in (tmp_path / "m").iterdir()
    }


def test_wrong_use_exits_with_2_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tiny-model", "--out", str(tmp_path), "--preset", "7b"])
    assert caught.value.code == 2 and "invalid choice: '7b'" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["tiny-model", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"ConfigError: {tmp_path / 'file'} is a file; name a folder\n"
