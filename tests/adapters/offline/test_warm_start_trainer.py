"""The configuration and the record of the warm-start trainer; `test_reference_training` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.evaluate.warm_start import WarmStartCheck, WarmStartRule
from verl_agentic.verl.extensions.offline.warm_start_trainer import check_config, read_checks, write_record

RULE = WarmStartRule(patience=2)
CONFIG = {
    "trainer": {"save_freq": 20},
    "checkpoint": {"save_contents": ["model", "hf_model"]},
    "model": {"path": "m"},
}


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("trainer", {"save_freq": -1}, "save_freq"),
        ("checkpoint", {"save_contents": ["model"]}, "hf_model"),
        ("model", {"lora_rank": 8}, "LoRA"),
        ("trainer", {"save_freq": 20, "max_ckpt_to_keep": 2}, "max_ckpt_to_keep"),
    ],
)
def test_checkpoints_that_cannot_be_checked_are_refused(section: str, changes: Any, message: str) -> None:
    check_config(OmegaConf.create(CONFIG), RULE)
    check_config(OmegaConf.create({**CONFIG, "trainer": {"save_freq": 20, "max_ckpt_to_keep": 3}}), RULE)
    with pytest.raises(ConfigError, match=message):
        check_config(OmegaConf.create({**CONFIG, section: changes}), RULE)


def test_a_resumed_run_reads_the_checks_of_the_record(tmp_path: Path) -> None:
    checks = [WarmStartCheck(step=step, pass_at_1=0.1, pass_at_k=0.5, entropy=1.0) for step in (20, 40)]
    path = tmp_path / "warm_start.json"
    assert read_checks(path) == []
    assert write_record(path, checks, RULE) == ""
    assert read_checks(path) == checks
