"""verl's FSDP2 engine without a trainer around it: the engine, its batches, and its loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import verl  # noqa: F401  loads the plugin
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import ActorConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, PolicyLossConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils import losses

MICRO_BATCH = 8
_PRECISION = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass
class Episode:
    """A row of tokens: a prompt, and what follows it."""

    prompt: list[int]
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """1 for each sampled token of the response, 0 for tokens of observations."""
    log_probs: list[float] = field(default_factory=list)
    """Of the sampled tokens, by the rollout engine."""

    def append(self, tokens: Sequence[int], log_probs: Sequence[float] | None = None) -> None:
        """Adds sampled tokens with their log-probs, or an observation."""
        self.response += tokens
        self.mask += [int(log_probs is not None)] * len(tokens)
        self.log_probs += log_probs or []

    @property
    def targets(self) -> torch.Tensor:
        """`[prompt + response]` bool: positions whose next token was sampled."""
        mask = [0] * len(self.prompt) + self.mask
        return torch.tensor([*mask[1:], 0]).bool()


@contextmanager
def one_rank(device: str) -> Iterator[None]:
    """Makes this process the only rank. No socket needs the name of the machine."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ[name] = value
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def make_engine(folder: Path, dtype: str) -> Any:
    """Returns verl's engine of a model, which computes in `dtype` and keeps float32 weights, as `agentic/one_gpu`."""
    precision = {"param_dtype": _PRECISION[dtype], "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=HFModelConfig(
            path=str(folder),
            use_remove_padding=False,
            override_config={"attn_implementation": "sdpa"},
            enable_gradient_checkpointing=False,
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2", mixed_precision=precision, model_dtype="fp32", use_torch_compile=False
        ),
        optimizer_config=FSDPOptimizerConfig(lr=1e-4, total_training_steps=10),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    return engine


def make_batch(episodes: Sequence[Episode], device: str) -> Any:
    """Returns the batch that verl's trainer would hand to the engine; advantages are 1 and -1 in turn."""
    columns: dict[str, list[torch.Tensor]] = {}
    for number, episode in enumerate(episodes):
        mask = torch.tensor(episode.mask)
        old = torch.zeros(len(mask)).masked_scatter(mask.bool(), torch.tensor(episode.log_probs))
        tokens = torch.tensor(episode.prompt + episode.response)
        row = {
            "input_ids": tokens,
            "position_ids": torch.arange(len(tokens)),
            "prompts": tokens[: len(episode.prompt)],
            "responses": tokens[len(episode.prompt) :],
            "response_mask": mask,
            "loss_mask": mask,
            "old_log_probs": old,
            "advantages": torch.full_like(old, (-1.0) ** number),
        }
        for name, column in row.items():
            columns.setdefault(name, []).append(column)
    settings = {
        "use_remove_padding": False,
        "use_dynamic_bsz": False,
        "micro_batch_size_per_gpu": MICRO_BATCH,
        "temperature": 1.0,
        "global_batch_size": len(episodes),
        "pad_token_id": 0,
    }
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    return tu.get_tensordict({**nested}, settings).to(device)


def infer_log_probs(engine: Any, batch: Any) -> list[torch.Tensor]:
    """Returns the log-prob of the next token at every position of every row, on the CPU."""
    with engine.eval_mode():
        rows = engine.infer_batch(batch)["model_output"]["log_probs"]
    return [row.cpu() for row in rows.unbind()]


def update(engine: Any, batch: Any, on_output: Callable[[Any], Any] = lambda output: output) -> float:
    """Updates the weights once by the loss `masked_ppo`; returns the norm of the gradient.

    Args:
        engine: of `make_engine`.
        batch: of `make_batch`.
        on_output: gets the model's output of each micro-batch, and returns what the loss gets.
    """
    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=2,
        ppo_mini_batch_size=2 * MICRO_BATCH,
        ppo_micro_batch_size_per_gpu=MICRO_BATCH,
        policy_loss=PolicyLossConfig(loss_mode="masked_ppo"),
        use_kl_loss=False,
    )

    def compute_loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        return losses.ppo_loss(config, on_output(model_output), data, dp_group)

    with engine.train_mode():
        return float(engine.train_batch(batch, loss_function=compute_loss)["metrics"]["grad_norm"])


def compute_token_gradients(engine: Any, batch: Any) -> torch.Tensor:
    """Updates the weights; returns the derivative of the loss at each position of all rows, one after the other."""
    gradients: list[torch.Tensor] = []

    def watch(model_output: Any) -> Any:
        nested = model_output["log_probs"]
        values = nested.values()
        values.register_hook(lambda gradient: gradients.append(gradient.detach().cpu().double()))
        watched = torch.nested.nested_tensor_from_jagged(values, offsets=nested.offsets())
        return {**model_output, "log_probs": watched}

    update(engine, batch, watch)
    return torch.cat(gradients)
