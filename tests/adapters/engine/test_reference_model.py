"""Construction of verl's reference from a model of its own; a whole run is in cpu/test_credit_training.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import ActorRolloutRefWorker

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.extensions.methods.engine.reference_model import build_reference, initialize_with_reference


def section(path: Path, **changes: Any) -> DictConfig:
    names = dict.fromkeys(("hf_config_path", "tokenizer_path"))
    overrides = {"override_config": {"attn_implementation": "eager"}}
    values = {"_target_": "verl.workers.config.HFModelConfig", "path": str(path), **names, **overrides, **changes}
    return OmegaConf.create(values)


def copied(model: Path, folder: Path, **changes: Any) -> Path:
    """Returns a folder with the config of a model, changed, and nothing else."""
    folder.mkdir()
    shutil.copy(model / "config.json", folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def built(policy: DictConfig, phi: Path) -> TrainingWorkerConfig:
    ours = TrainingWorkerConfig(model_type="language_model", model_config=omega_conf_to_dataclass(policy))
    return build_reference(lambda config: config, policy, str(phi), config=ours)


def test_the_model_is_that_of_the_path_and_the_tokenizer_the_policys(tiny_model: Path, tmp_path: Path) -> None:
    phi = copied(tiny_model, tmp_path / "phi", initializer_range=0.5)
    for policy in (section(tiny_model), section(tiny_model, tokenizer_path=str(tiny_model))):
        config = built(policy, phi)
        assert config.model_type == "language_model" and policy.path == str(tiny_model)
        model: Any = config.model_config
        assert model.path == model.local_path == str(phi) and model.hf_config.initializer_range == 0.5
        assert model.tokenizer_path == str(tiny_model) and len(model.tokenizer) > 0


def test_a_config_of_the_policys_is_not_taken_for_the_reward_model(tiny_model: Path, tmp_path: Path) -> None:
    phi = copied(tiny_model, tmp_path / "phi", initializer_range=0.5)
    config: Any = built(section(tiny_model, hf_config_path=str(tiny_model)), phi)
    assert config.model_config.hf_config.initializer_range == 0.5


def test_another_vocabulary_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    phi = copied(tiny_model, tmp_path / "phi", vocab_size=7)
    with pytest.raises(ConfigError, match="vocab_size"):
        built(section(tiny_model), phi)


def saved(model: Path, folder: Path, renamed: tuple[str, str] = ("", ""), *, without: str | None = None) -> Path:
    """Returns a folder with a model whose weights are called otherwise, or that lacks one."""
    copied(model, folder)
    weights = {name.replace(*renamed, 1): weight for name, weight in load_file(model / "model.safetensors").items()}
    save_file({name: weight for name, weight in weights.items() if name != without}, folder / "model.safetensors")
    return folder


@pytest.mark.slow
def test_a_whole_model_is_taken_in_one_file_or_in_many(tiny_model: Path, tmp_path: Path) -> None:
    assert "lm_head.weight" not in load_file(tiny_model / "model.safetensors"), "it is tied"
    built(section(tiny_model), saved(tiny_model, tmp_path / "one"))
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.save_pretrained(tmp_path / "many", max_shard_size="100KB")
    assert (tmp_path / "many" / "model.safetensors.index.json").is_file()
    built(section(tiny_model), tmp_path / "many")


@pytest.mark.slow
def test_names_that_transformers_translates_are_no_fault(tiny_model: Path, tmp_path: Path) -> None:
    model: Any = built(section(tiny_model), saved(tiny_model, tmp_path / "phi", ("model.", ""))).model_config
    assert model.local_path == str(tmp_path / "phi")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"renamed": ("model.", "base_model.model.model.")}, r"without lm_head.weight and \d\d others"),
        ({"without": "model.norm.weight"}, "without model.norm.weight and 0 others"),
    ],
)
def test_weights_that_would_be_random_are_refused(
    change: dict[str, Any], message: str, tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"lack weights, got '.*phi' {message}; .*merge its LoRA"):
        built(section(tiny_model), saved(tiny_model, tmp_path / "phi", **change))


class Worker:
    """verl's worker as far as its reference goes."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.ref_worker_cls = lambda config: config


def test_a_worker_tells_the_path_only_when_the_reference_is_built_of_it(tiny_model: Path) -> None:
    ours = TrainingWorkerConfig(model_type="language_model", model_config=omega_conf_to_dataclass(section(tiny_model)))
    for path in (str(tiny_model), None):
        worker = cast("Any", SimpleNamespace())
        values = {"model": section(tiny_model), **({"reference_path": path} if path else {})}
        initialize_with_reference(Worker.__init__, worker, OmegaConf.create(values))
        tell = cast("Any", ActorRolloutRefWorker).loaded_reference_path
        assert tell(worker) is None
        worker.ref_worker_cls(config=ours)
        assert tell(worker) == path


def test_verl_calls_it_on_every_worker() -> None:
    from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch

    method, dispatch = cast("Any", ActorRolloutRefWorker).loaded_reference_path, cast("Any", Dispatch)
    assert getattr(method, MAGIC_ATTR)["dispatch_mode"] == dispatch.ONE_TO_ALL
