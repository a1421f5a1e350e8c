"""The learning rate of a batch: the optimizer sees it for one update, and nobody else ever does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.config.optimizer import FSDPOptimizerConfig
from verl.workers.engine.base import BaseEngine
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

import verl_agentic.verl.extensions.methods.engine.learning_rate  # noqa: F401


class Engine(FSDPEngine):
    """verl's engine around one weight whose gradient is 1."""

    def __init__(self, *, tensor_rate: bool = False) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.module = torch.nn.Module()
        self.module.weight = self.weight
        rate = torch.tensor(0.5) if tensor_rate else 0.5
        self.optimizer = torch.optim.SGD([{"params": [self.weight], "lr": rate}])
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.5**step)
        self.optimizer_config = SimpleNamespace(clip_grad=1e9)
        self._qat_enabled = False
        self.seen: list[float] = []

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        loss_function(self.weight).backward()
        self.seen.append(self.rate)
        return {"metrics": {}}

    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def update(self, scale: float | None = None, loss: Any = lambda weight: weight) -> float:
        """Returns how far the weight went down."""
        before = float(self.weight.detach())
        data = TensorDict({"x": torch.zeros(2)}, batch_size=2)
        if scale is not None:
            tu.assign_non_tensor(data, lr_scale=scale)
        self.train_batch(data, loss)
        return before - float(self.weight.detach())


@pytest.mark.parametrize("tensor_rate", [False, True])
def test_the_rate_holds_for_the_updates_of_its_batch(tensor_rate: bool) -> None:
    engine = Engine(tensor_rate=tensor_rate)
    assert [engine.update(), engine.update(0.25), engine.update(0.25), engine.update()] == [0.5, 0.125, 0.125, 0.5]
    assert engine.seen == [0.5] * 4 and engine.rate == 0.5


def test_the_schedule_and_the_checkpoint_see_the_unscaled_rate() -> None:
    engine = Engine()
    engine.update(0.25)
    assert engine.optimizer.state_dict()["param_groups"][0]["lr"] == 0.5
    assert engine.lr_scheduler_step() == 0.25, "verl's metric actor/lr"
    assert engine.update(0.5) == 0.125 and engine.lr_scheduler_step() == 0.125
    assert engine.lr_scheduler.state_dict()["_last_lr"] == [0.125]


def test_another_optimizer_is_left_alone() -> None:
    actor, critic = Engine(), Engine()
    actor.update(0.25)
    assert critic.update() == 0.5


def test_the_rate_is_restored_when_an_update_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()

    def step() -> None:
        assert engine.rate == 0.125
        raise RuntimeError("no")

    monkeypatch.setattr(engine.optimizer, "step", step)
    with pytest.raises(RuntimeError):
        engine.update(0.25)
    assert engine.rate == 0.5


def test_an_update_that_verl_skips_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    assert engine.update(0.25, lambda weight: weight * torch.inf) == 0 and engine.rate == 0.5


def test_the_engines_of_verl_inherit_it() -> None:
    for engine in (FSDPEngineWithLMHead, FSDPEngineWithValueHead):
        assert engine.train_batch is FSDPEngine.train_batch and engine.optimizer_step is FSDPEngine.optimizer_step
    assert FSDPEngine.train_batch is not BaseEngine.train_batch, "other strategies are left alone"


@pytest.mark.parametrize(
    ("kind", "rates"),
    [("constant", {0: 0.0, 5: 0.5, 10: 1.0, 55: 1.0}), ("cosine", {5: 0.5, 10: 1.0, 55: 0.5, 100: 0.0})],
)
def test_verls_schedules_warm_up_and_cosine_has_half_at_half(kind: str, rates: dict[int, float]) -> None:
    engine = Engine()
    engine.rank, engine.optimizer = 1, torch.optim.SGD([engine.weight], lr=1.0)
    engine.optimizer_config = FSDPOptimizerConfig(
        lr=1.0, total_training_steps=100, lr_warmup_steps=10, lr_scheduler_type=kind, min_lr_ratio=0.0
    )
    schedule = engine._build_lr_scheduler(engine.optimizer)
    for step in range(101):
        if step in rates:
            assert engine.rate == pytest.approx(rates[step], abs=1e-6), step
        engine.optimizer.step()
        schedule.step()
