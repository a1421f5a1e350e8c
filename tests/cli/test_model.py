"""`verl-agentic model`: merges on disk, and probes against a model served in this process."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from verl_agentic.cli import main
from verl_agentic.cpu.tiny_model import make_tiny_model


def _tuned(base: Path, out: Path, **updates: float) -> Path:
    """Writes a copy of a model with one coordinate of each named tensor changed."""
    out.mkdir()
    for path in base.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    tensors = load_file(base / "model.safetensors")
    for name, update in updates.items():
        tensors[name.replace("__", ".")].view(-1)[0] += update
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


@pytest.fixture
def base(tmp_path: Path) -> Path:
    make_tiny_model(tmp_path / "base")
    return tmp_path / "base"


def _merge(*arguments: Any, code: int = 0) -> None:
    assert main(["model", "merge", *map(str, arguments)]) == code


def test_a_merged_folder_has_every_update_and_loads_as_a_model(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    one = _tuned(base, tmp_path / "one", model__norm__weight=0.5, model__embed_tokens__weight=0.25)
    two = _tuned(base, tmp_path / "two", model__norm__weight=1.0)
    _merge(base, one, two, "--out", tmp_path / "merged", "--json")
    report = json.loads(capsys.readouterr().out)
    assert [round(share * report["num_parameters"]) for share in report["active"]] == [2, 1]
    assert [round(share * report["num_parameters"]) for share in report["shared"]] == [1, 1]
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "merged"))
    changed = {name: (after[name] - before[name]).abs().max().item() for name in before}
    assert {name: size for name, size in changed.items() if size} == {
        "model.norm.weight": pytest.approx(0.75, abs=0.01), "model.embed_tokens.weight": pytest.approx(0.25, abs=0.01)
    }  # fmt: skip
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict()["model.norm.weight"]
    torch.testing.assert_close(loaded, after["model.norm.weight"], check_dtype=False)


def test_shards_keep_their_names_and_rescaling_reads_all_of_them(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = _tuned(base, tmp_path / "one", model__norm__weight=0.5, model__embed_tokens__weight=0.25)
    two = _tuned(base, tmp_path / "two", model__norm__weight=1.0)
    tensors = load_file(base / "model.safetensors")
    files = {name: "a.safetensors" if name == "model.norm.weight" else "b.safetensors" for name in tensors}
    for file in set(files.values()):
        save_file({name: tensor for name, tensor in tensors.items() if files[name] == file}, base / file)
    (base / "model.safetensors").unlink()
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    _merge(base, one, two, "--out", tmp_path / "merged", "--rescale", "1.2", "--json")
    assert json.loads(capsys.readouterr().out)["scales"] == pytest.approx([1.2, 1.2])
    merged = load_file(tmp_path / "merged" / "b.safetensors")["model.embed_tokens.weight"]
    before = tensors["model.embed_tokens.weight"]
    assert (merged - before).abs().max().item() == pytest.approx(0.3, abs=0.01)
    assert load_file(tmp_path / "merged" / "a.safetensors").keys() == {"model.norm.weight"}


def test_models_that_do_not_fit_are_refused_before_anything_is_written(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = _tuned(base, tmp_path / "one")
    other = _tuned(base, tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, other / "model.safetensors")
    (tmp_path / "adapter").mkdir()
    for wrong, message in (
        (other, "1 tensors differ, got model.norm.weight with shape"),
        (tmp_path / "adapter", "lacks ['model.safetensors']"),
    ):
        _merge(base, one, wrong, "--out", tmp_path / "merged", code=2)
        assert message in capsys.readouterr().err and not (tmp_path / "merged").exists()
    _merge(base, one, one, "--out", tmp_path / "other", code=2)
    assert "needs an empty folder" in capsys.readouterr().err
    _merge(base, one, "--out", tmp_path / "merged", code=2)
    assert "a merge takes two models" in capsys.readouterr().err


@pytest.mark.sample(1)
@pytest.mark.parametrize("limit", [0.0, 50.0])
def test_a_probe_measures_a_served_model_and_its_exit_code_is_the_verdict(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: float
) -> None:
    lenient = [f"--min-{name}=0" for name in ("pass-at-k", "mixed", "valid-calls")]
    given = ["model", "probe", str(tiny_model), "--env", "text_game", "--rows", "2", "--samples", "2", "--limit",
             "max_response_tokens=16", "--limit", "max_turns=2", "--out", str(tmp_path), "--json"]  # fmt: skip
    assert main([*given, *lenient, f"--min-entropy={limit}"]) == int(limit > 0)
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["failed"] == (["entropy"] if limit else []) and found["good_start"] == (not limit)
    # A random model is close to uniform over its vocabulary.
    vocabulary = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    assert found["entropy"]["mean"] == pytest.approx(math.log(vocabulary), rel=0.1)
    assert (found["k"], found["pass@k"], found["pass@1"]["mean"], found["void"]) == (2, 0.0, 0.0, 0.0)
    assert found["pass@1"]["ci95"][1] > 0.3, "two tasks say little"


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "probe", str(tmp_path), "--env", "text_game"]) == 2
    assert "no such model folder" in capsys.readouterr().err
    assert main(["model", "probe", str(tmp_path), "--env", "text_game", "--samples", "1"]) == 2
    assert "at least 2 --samples" in capsys.readouterr().err


def test_models_that_no_other_beats_are_on_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"a": (0.8, 0.9, 3), "b": (0.7, 0.9, 3), "c": (0.6, 1.0, 1), "d": (0.8, 0.9, 4)}
    for name, (success, safety, cost) in figures.items():
        (tmp_path / name).mkdir()
        summary = {
            "success": {"mean": success, "stderr": 0.1, "ci95": [0.5, 0.9]},
            "safety": {"mean": safety, "stderr": None},
            "cost": {"per_episode": cost, "per_solved": None},
        }
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    folders = [str(tmp_path / name) for name in figures]
    given = ["model", "front", *folders, "--by", "success,safety,-cost.per_episode"]
    assert main([*given, "--json"]) == 0
    assert [Path(name).name for name in json.loads(capsys.readouterr().out)["front"]] == ["a", "c"]
    assert main(given) == 0 and "0.800 (0.500 to" in capsys.readouterr().out
    assert main(["model", "front", *folders, "--by", "cost.per_solved"]) == 2
    assert "'cost.per_solved'" in capsys.readouterr().err
    assert main(["model", "front", str(tmp_path)]) == 2
    assert "has no summary" in capsys.readouterr().err
