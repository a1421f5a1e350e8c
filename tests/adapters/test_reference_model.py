"""What verl's reference is built of when it has a model of its own; a whole run is in cpu/test_credit_training.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig

from verl_agentic.adapters.reference_model import build_reference
from verl_agentic.errors import ConfigError


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
    with pytest.raises(ConfigError, match=r"vocabulary of the policy, got 7 tokens in '.*phi'"):
        built(section(tiny_model), phi)
