"""A rank of an actor with a teacher that follows it slowly, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from target_ranks import batch, same, shards, target, write
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry

TAU = 0.25


def make_engine(model: Path) -> Any:
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=HFModelConfig(
            path=str(model), use_remove_padding=False, override_config={"attn_implementation": "sdpa"}
        ),
        # Without it, verl's engine keeps the weights of a pass gathered for the next one.
        engine_config=FSDPEngineConfig(
            strategy="fsdp2", reshard_after_forward=False, mixed_precision={"param_dtype": "fp32"}
        ),
        optimizer_config=FSDPOptimizerConfig(lr=1e-2, total_training_steps=10),
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    return engine


def loss(model_output: Any, data: Any, dp_group: Any = None) -> Any:
    return -model_output["log_probs"].values().mean(), {}


def train(engine: Any, rank: int) -> None:
    with engine.train_mode():
        engine.train_batch(batch(rank), loss_function=loss)


def log_probs(engine: Any, rank: int, *, of_teacher: bool) -> torch.Tensor:
    data = batch(rank)
    if of_teacher:
        tu.assign_non_tensor(data, teacher_tau=TAU)
    with engine.eval_mode():
        return engine.infer_batch(data)["model_output"]["log_probs"].values().clone()


def facts_of(folder: Path, rank: int) -> dict[str, bool]:
    engine = make_engine(folder / "model")
    plain, first = log_probs(engine, rank, of_teacher=False), shards(engine)
    facts = {"there_is_none_until_it_is_asked": not hasattr(engine, "agentic_target")}
    facts["it_begins_as_the_actor"] = torch.equal(log_probs(engine, rank, of_teacher=True), plain)
    for _ in range(2):
        train(engine, rank)
    once = shards(engine)
    facts["mini_batches_do_not_move_it"] = same(target(engine), first) and not same(once, first)
    engine.lr_scheduler_step()
    expected = {name: first[name].lerp(weight, TAU) for name, weight in once.items()}
    facts["it_follows_after_all_of_them"] = same(target(engine), expected)
    engine.lr_scheduler_step()
    facts["and_once_only"] = same(target(engine), expected)
    taught, own = (log_probs(engine, rank, of_teacher=which) for which in (True, False))
    facts["they_differ"] = not torch.equal(taught, own)
    facts["its_passes_leave_the_actor"] = same(shards(engine), once) and same(target(engine), expected)
    write(engine, expected)
    facts["its_passes_are_of_its_weights"] = torch.equal(log_probs(engine, rank, of_teacher=False), taught)
    write(engine, once)
    engine.save_checkpoint(str(folder / "saved"))
    resumed = make_engine(folder / "model")
    resumed.load_checkpoint(str(folder / "saved"), None, False)
    facts["it_is_restored_when_it_is_asked_again"] = torch.equal(log_probs(resumed, rank, of_teacher=True), taught)
    facts["and_the_actor_is_its_own"] = torch.equal(log_probs(resumed, rank, of_teacher=False), own)
    return facts
