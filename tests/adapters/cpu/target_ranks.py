"""A rank of a critic with a target network, on the CPU: updates, passes, a failure, a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.fsdp import FSDPModule
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPCriticConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry

TAU = 0.25
Weights = dict[str, torch.Tensor]


def make_engine(model: Path, *, tau: float | None = TAU) -> Any:
    torch.manual_seed(0)  # the head is new
    config = FSDPCriticConfig(
        strategy="fsdp2",
        ppo_micro_batch_size_per_gpu=1,
        model=HFModelConfig(path=str(model), use_remove_padding=False, override_config={"attn_implementation": "sdpa"}),
        # Without it, verl's engine keeps the weights of a pass gathered for the next one.
        fsdp=FSDPEngineConfig(reshard_after_forward=False, mixed_precision={"param_dtype": "fp32"}),
        optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=10),
        **({} if tau is None else {"target": {"tau": tau}}),  # pyright: ignore[reportArgumentType]
    )
    object.__setattr__(config.model, "model_type", "value_model")
    engine = EngineRegistry.new(
        model_type="value_model",
        backend="fsdp2",
        model_config=config.model,
        engine_config=config.engine,
        optimizer_config=config.optim,
        checkpoint_config=config.checkpoint,
    )
    engine.initialize()
    return engine


def batch(rank: int) -> TensorDict:
    rows = [torch.arange(4) + 10 * rank, torch.arange(6) + 20 + 10 * rank]
    nested = [torch.nested.as_nested_tensor(rows, layout=torch.jagged)]
    nested += [torch.nested.as_nested_tensor([torch.arange(len(row)) for row in rows], layout=torch.jagged)]
    nested += [torch.nested.as_nested_tensor([torch.ones(len(row)) for row in rows], layout=torch.jagged)]
    columns: dict[str, Any] = dict(zip(("input_ids", "position_ids", "loss_mask"), nested, strict=True))
    numbers = {"use_remove_padding": False, "use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1, "temperature": 1.0}
    return tu.get_tensordict(columns, numbers)


def loss(model_output: Any, data: Any, dp_group: Any = None, *, towards: float = 1.0) -> Any:
    return (model_output["values"].values() - towards).square().mean(), {}


def nowhere(**given: Any) -> Any:
    return loss(**given, towards=float("inf"))


def shards(engine: Any) -> Weights:
    for part in engine.module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
    return {name: weight.detach().to_local().clone() for name, weight in engine.module.named_parameters()}


def target(engine: Any) -> Weights:
    return {name: weight.clone() for name, weight in engine.agentic_target.state_dict().items()}


def same(one: Weights, other: Weights) -> bool:
    return set(one) == set(other) and all(torch.equal(weight, other[name]) for name, weight in one.items())


def train(engine: Any, rank: int, function: Any = loss) -> None:
    with engine.train_mode():
        engine.train_batch(batch(rank), loss_function=function)


def values(engine: Any, rank: int) -> Weights:
    with engine.eval_mode():
        outputs = engine.infer_batch(batch(rank))["model_output"]
    return {name: column.values().clone() for name, column in outputs.items()}


def write(engine: Any, weights: Weights) -> None:
    shards(engine)
    with torch.no_grad():
        for name, weight in engine.module.named_parameters():
            weight.to_local().copy_(weights[name])


def updates(engine: Any, rank: int) -> dict[str, bool]:
    fresh, first = values(engine, rank), shards(engine)
    facts = {
        "starts_as_the_critic": same(target(engine), first),
        "first_pass_gives_the_same": torch.equal(fresh["values"], fresh["target_values"]),
    }
    train(engine, rank)
    once = shards(engine)
    expected = {name: first[name].lerp(weight, TAU) for name, weight in once.items()}
    facts["follows_an_update"] = same(target(engine), expected) and not same(once, first)
    train(engine, rank, nowhere)
    facts["stays_where_verl_skips_one"] = same(target(engine), expected) and same(shards(engine), once)
    return facts


def passes(engine: Any, rank: int, monkey: Any) -> dict[str, bool]:
    online, copy, given = shards(engine), target(engine), values(engine, rank)
    facts = {"a_pass_leaves_both": same(shards(engine), online) and same(target(engine), copy)}
    facts["values_are_the_critics"] = torch.equal(values(engine, rank)["values"], given["values"])
    facts["they_differ"] = not torch.equal(given["values"], given["target_values"])
    with engine.eval_mode():
        facts["a_loss_gets_no_second_pass"] = (
            "target_values" not in engine.infer_batch(batch(rank), loss)["model_output"]
        )
    monkey.forward_backward_batch = fails_second(monkey.forward_backward_batch)
    try:
        values(engine, rank)
    except RuntimeError:
        del monkey.forward_backward_batch
        facts["a_failure_leaves_both"] = same(shards(engine), online) and same(target(engine), copy)
    write(engine, copy)
    facts["target_values_are_the_copys"] = torch.equal(values(engine, rank)["values"], given["target_values"])
    write(engine, online)
    return facts


def fails_second(original: Any) -> Any:
    calls: list[int] = []

    def forward(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the second pass")
        return original(*args, **kwargs)

    return forward


def checkpoints(engine: Any, rank: int, folder: Path) -> dict[str, bool]:
    engine.save_checkpoint(str(folder / "with"))
    saved, critic = target(engine), shards(engine)
    resumed = make_engine(folder / "model")
    resumed.load_checkpoint(str(folder / "with"), None, False)
    facts = {"is_restored": same(target(resumed), saved) and same(shards(resumed), critic)}
    for one in (engine, resumed):
        train(one, rank)
    facts["goes_on_to_the_bit"] = same(target(resumed), target(engine)) and same(shards(resumed), shards(engine))
    facts["has_moved"] = not same(target(engine), saved)
    (folder / "with" / f"target_world_size_2_rank_{rank}.pt").unlink()
    late = make_engine(folder / "model")
    late.load_checkpoint(str(folder / "with"), None, False)
    facts["without_one_it_starts_from_the_loaded"] = same(target(late), critic)
    return facts


def facts_of(folder: Path, rank: int) -> dict[str, bool]:
    engine = make_engine(folder / "model")
    full = {name: list(weight.shape) for name, weight in engine.module.named_parameters()}
    halves = {name: list(weight.shape) for name, weight in target(engine).items()}
    facts = {"is_a_shard": full.keys() == halves.keys() and full != halves}
    facts |= updates(engine, rank) | passes(engine, rank, engine) | checkpoints(engine, rank, folder)
    facts["nobody_else_has_one"] = set(values(make_engine(folder / "model", tau=None), rank)) == {"values"}
    return facts
