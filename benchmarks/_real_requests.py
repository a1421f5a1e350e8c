"""Requests of the course `smollm2` for `engines.py`: what the server gets in a step of GRPO."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path

from _report import median
from safetensors import safe_open
from transformers import AutoConfig

from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.verl.rollout.model_codec import load_codec

_GROUP = 8


def make_real_requests(course: Course, model: Path, *, quick: bool) -> list[tuple[list[int], int]]:
    """Returns 8 prompts, each for a group of 8, with numbers of new tokens; `quick`: one prompt, and fewer tokens.

    At most 64 new tokens are the limit of a turn in the recipe.
    """
    num_groups, new_tokens = (1, (4, 16)) if quick else (8, (16, 64))
    make_rows = course.package.make_rows
    assert make_rows is not None
    _, codec = load_codec(str(model), protocol=course.protocol)
    rng = random.Random(0)
    requests = []
    for row in make_rows(split="train", count=num_groups, seed=0):
        env = course.package.make_env(row)
        prompt_ids = asyncio.run(codec.encode_prompt(row.prompt, list_schemas(env.tools)))
        requests += [(list(prompt_ids), rng.randint(*new_tokens)) for _ in range(_GROUP)]
    return requests


def weights_and_cache_gb(model: Path, requests: Sequence[tuple[list[int], int]]) -> dict[str, float]:
    """Returns the sizes of the weights and of the keys and values of all requests at their ends, in float32."""
    config = AutoConfig.from_pretrained(model)
    with safe_open(model / "model.safetensors", framework="pt") as file:
        num_weights = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    of_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    num_tokens = sum(len(ids) + count for ids, count in requests)
    return {"weights_gb": median([4 * num_weights / 2**30]), "cache_gb": median([4 * of_token * num_tokens / 2**30])}
