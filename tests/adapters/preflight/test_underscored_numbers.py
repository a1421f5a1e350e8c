"""Ranges that Hydra or YAML read as one number are named, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl")

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from verl_agentic.verl.extensions.preflight.underscored_numbers import numbers_meant_as_ranges

KEY = "algorithm.rollout_correction.rollout_is_threshold"


@pytest.mark.parametrize("text", ["0.5_2", ".5_2", "1_2", "5e-1_2", "'0.5_2'", "0.5_2.0", "0.5", "2", "null"])
@pytest.mark.parametrize("prefix", ["", "++"])
def test_an_override_is_named_if_its_underscore_is_lost(prefix: str, text: str) -> None:
    override = f"{prefix}{KEY}={text}"
    value = OverridesParser.create().parse_override(override).value()
    config = OmegaConf.create()
    OmegaConf.update(config, KEY, value)
    faults = numbers_meant_as_ranges(config, config_dir=None, overrides=[override])
    assert len(faults) == ("_" in text and isinstance(value, float | int))


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("rollout_is_threshold: 0.5_2  # a range", True),
        ('"rollout_is_threshold": 1_2', True),
        ("{x: 1, rollout_is_threshold: 0.5_2}", True),
        ("rollout_is_threshold: '0.5_2'", False),
        ("# rollout_is_threshold: 0.5_2\nrollout_is_threshold: 0.52", False),
    ],
)
def test_a_line_of_yaml_is_named_if_its_underscore_is_lost(tmp_path: Path, line: str, is_fault: bool) -> None:
    (tmp_path / "run.yaml").write_text(line)
    config = OmegaConf.create({"algorithm": {"rollout_correction": OmegaConf.load(tmp_path / "run.yaml")}})
    assert len(numbers_meant_as_ranges(config, config_dir=tmp_path, overrides=[])) == is_fault
