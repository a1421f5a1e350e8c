"""Parameters in verl's and vLLM's form."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.cpu.inference.request import SamplingParams


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_new_tokens": 7}, {"max_tokens": 7}),
        ({"stop": "</a>"}, {"stop": ("</a>",)}),
        ({"stop": ["a", "b"], "stop_token_ids": [3]}, {"stop": ("a", "b"), "stop_token_ids": (3,)}),
        ({"stop": None, "stop_token_ids": None}, {}),
        ({"logprobs": 0}, {"logprobs": True}),
        ({"logprobs": None}, {"logprobs": False}),
        ({"logprobs": False}, {"logprobs": False}),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5, "repetition_penalty": 1.1, "seed": 3}, None),
    ],
)
def test_a_mapping_means_what_it_means_to_vllm(given: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert SamplingParams.from_mapping(given) == SamplingParams(**(given if expected is None else expected))
