"""Measures forward and backward pass of a group whose prompt is computed once, beside verl's single rows.

All sides are verl's FSDP engine and compute logits of trained tokens only, in float32 with the same attention (SDPA).
So a ratio shows what the shared prompt is worth. The model has 2 narrow layers. Time is CPU time of one thread, and a
token of a prompt counts once for every row.

`vs_padded`: tokens per second over those of padded rows.
`vs_remove_padding`: over those with `use_remove_padding=true`, where torch computes all pairs of tokens of all rows. It
is left out for groups of more than 10,000 tokens, because its time grows with their square.
`gradient_max_difference`: the largest difference to the gradient of padded rows, over the largest value of the gradient
of the same weight.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("VERL_PLATFORM", "cpu")  # before verl

import torch
from _narrow_model import build_llama
from _report import Target, median, progress, report
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

_GROUPS, _PROMPTS, _RESPONSES = (8, 16), (512, 1_024, 2_048, 4_096, 8_192), (64, 256)
_NUM_LAYERS, _VOCAB_SIZE = 2, 1_024
_MAX_TOKENS_WITHOUT_PADDING = 10_000
_MAX_PASSES, _MAX_S = 5, 5.0
"""Of a side, whose median counts."""


class Engine(FSDPEngineWithLMHead):
    """verl's engine as far as it takes passes, on one rank."""

    def __init__(self, *, shares: bool) -> None:
        """Builds the same model every time."""
        # Its query heads share a key-value head.
        self.module = build_llama(
            num_hidden_layers=_NUM_LAYERS, hidden_size=64, intermediate_size=172, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, vocab_size=_VOCAB_SIZE, max_position_embeddings=16_384,
            attn_implementation="sdpa",
        )  # fmt: skip
        self.engine_config = SimpleNamespace(strategy="fsdp2")
        options = {"impl_backend": "sampled", "shared_prompts": shares}
        self.model_config = SimpleNamespace(use_fused_kernels=True, fused_kernel_options=options)
        self.pad_to_length = self.use_ulysses_sp = False
        self.ulysses_sequence_parallel_size, self._autocast_dtype = 1, torch.float32

    def get_data_parallel_group(self) -> None:
        """Returns nothing: there is one rank."""

    def measure(self: Any, batch: TensorDict) -> tuple[float, dict[str, torch.Tensor]]:
        """Returns the CPU seconds of a forward and backward pass, and the gradients."""
        self.module.zero_grad()
        begin = time.process_time()
        loss, _ = self.forward_step(batch, _mean_log_prob, False)
        loss.backward()
        seconds = time.process_time() - begin
        return seconds, {name: weight.grad for name, weight in self.module.named_parameters()}


def main() -> int:
    """Runs the passes and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="groups of 8, prompts of up to 1,024 tokens")
    options = parser.parse_args()
    groups, prompts = (_GROUPS[:1], _PROMPTS[:2]) if options.quick else (_GROUPS, _PROMPTS)
    torch.set_num_threads(1)
    engines = {"shared": Engine(shares=True), "padded": Engine(shares=False), "remove_padding": Engine(shares=False)}
    for name, engine in engines.items():  # allocates, and compares packed with single rows
        engine.measure(_make_group(8, 512, remove_padding=name == "remove_padding"))
    ratios: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    differences = []
    for num_rows in groups:
        for prompt in prompts:
            case = f"{num_rows}x{prompt}"
            speeds: dict[str, Any] = dict.fromkeys(engines)
            gradients = {}
            for name, engine in engines.items():
                batch = _make_group(num_rows, prompt, remove_padding=name == "remove_padding")
                num_tokens = len(batch["input_ids"].values())
                if name == "remove_padding" and num_tokens > _MAX_TOKENS_WITHOUT_PADDING:
                    continue
                seconds = []
                while len(seconds) < _MAX_PASSES and sum(seconds) < _MAX_S:
                    duration, gradients[name] = engine.measure(batch)
                    seconds.append(duration)
                speeds[name] = median([num_tokens / duration for duration in seconds])
            differences.append(_max_difference(gradients["shared"], gradients["padded"]))
            figures |= {f"{name}.{case}.tokens_per_cpu_s": speed for name, speed in speeds.items()}
            for name in ("padded", "remove_padding"):
                ratio = None if speeds[name] is None else median([speeds["shared"] / speeds[name]])
                ratios[f"vs_{name}.{case}"] = ratio
            reason = f"all pairs of more than {_MAX_TOKENS_WITHOUT_PADDING} tokens take too long"
            reasons |= {
                key: reason
                for key in (f"remove_padding.{case}.tokens_per_cpu_s", f"vs_remove_padding.{case}")
                if speeds["remove_padding"] is None
            }
            progress(f"{case}: {speeds} tokens per CPU second, gradients differ by {differences[-1]:.1e}")
    figures["gradient_max_difference"] = float(f"{max(differences):.2g}")
    return report(
        "shared_prompts",
        ratios=ratios,
        figures=figures,
        targets={
            "gradient_max_difference": Target(bound=1e-5, at_least=False),
            f"vs_padded.8x{prompts[-1]}": Target(bound=2.0),
        },
        reasons=reasons,
    )


def _make_group(num_rows: int, prompt: int, *, remove_padding: bool) -> TensorDict:
    """Returns rows of one prompt, with responses of 64 to 256 tokens that are all trained."""
    rng = random.Random(num_rows + prompt)

    def draw_ids(count: int) -> list[int]:
        return [rng.randrange(_VOCAB_SIZE) for _ in range(count)]

    prompt_ids = draw_ids(prompt)
    responses = [draw_ids(rng.randint(*_RESPONSES)) for _ in range(num_rows)]
    columns = {
        "input_ids": [torch.tensor(prompt_ids + ids) for ids in responses],
        "position_ids": [torch.arange(prompt + len(ids)) for ids in responses],
        "response_mask": [torch.ones(len(ids), dtype=torch.int64) for ids in responses],
    }
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    batch = TensorDict({**nested, "temperature": torch.ones(num_rows)}, batch_size=num_rows)
    tu.assign_non_tensor(batch, use_fused_kernels=True, use_remove_padding=remove_padding)
    return batch


def _mean_log_prob(*, model_output: Any, data: Any, dp_group: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    log_probs = model_output["log_probs"].values()
    # Weights: a mean would hide exchanged tokens.
    return (log_probs * torch.linspace(0.0, 1.0, len(log_probs))).sum() / data["response_mask"].values().numel(), {}


def _max_difference(gradients: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    return max(
        ((gradient - others[name]).abs().max() / others[name].abs().max()).item()
        for name, gradient in gradients.items()
    )


if __name__ == "__main__":
    sys.exit(main())
