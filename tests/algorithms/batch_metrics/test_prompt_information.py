"""Information that texts carry about their prompts, against numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.methods.prompt_information import PromptInformationSettings, prompt_information

ONES = torch.ones(3, dtype=torch.int64)


def test_texts_that_say_the_same_of_every_prompt_tell_nothing() -> None:
    found = prompt_information(torch.tensor([[-5.0] * 3, [-9.0] * 3, [-1.0] * 3]), ONES)
    assert found == pytest.approx(
        {"prompt_information": 0.0, "prompt_information_per_token": 0.0, "prompt_retrieval": 0.0}, abs=1e-12
    )


def test_texts_that_can_be_of_one_prompt_only_tell_which() -> None:
    log_prob_MM = torch.full((3, 3), -1e9)
    log_prob_MM.fill_diagonal_(-7.0)
    found = prompt_information(log_prob_MM, ONES)
    assert found["prompt_information"] == pytest.approx(math.log(3)) and found["prompt_retrieval"] == 1.0


def test_two_by_two_by_hand() -> None:
    # Text 0: p = .8 and .2, mean .5; text 1: .3 and .1, mean .2: its own prompt is the less likely one.
    found = prompt_information(torch.tensor([[0.8, 0.2], [0.3, 0.1]]).log(), torch.tensor([1, 1]))
    wanted = (math.log(0.8 / 0.5) + math.log(0.1 / 0.2)) / 2
    assert found["prompt_information"] == pytest.approx(wanted) == pytest.approx(-0.111572, abs=1e-6)
    assert found["prompt_retrieval"] == 0.5


def test_per_token_log_probs_are_divided_before_anything_else() -> None:
    # Two tokens of text 0: .8 = .64 ** (1/2), .2 = .04 ** (1/2).
    found = prompt_information(torch.tensor([[0.64, 0.04], [0.1, 0.3]]).log(), torch.tensor([2, 1]))
    wanted = (math.log(0.8 / 0.5) + math.log(0.3 / 0.2)) / 2
    assert found["prompt_information_per_token"] == pytest.approx(wanted)
    assert found["prompt_information"] == pytest.approx((math.log(0.64 / 0.34) + math.log(0.3 / 0.2)) / 2)


@pytest.mark.parametrize("section", [True, 10])
def test_what_is_no_section_is_refused(section: Any) -> None:
    with pytest.raises(ConfigError, match=f"must be a section of keys, got {section}"):
        read_settings(PromptInformationSettings, section, section="s")


def test_an_empty_section_has_the_defaults() -> None:
    expected = PromptInformationSettings(every=10, prompts=8, tokens=256)
    assert read_settings(PromptInformationSettings, {}, section="s") == expected
