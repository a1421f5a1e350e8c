"""A resumed run of supervised or offline training does the steps that the interrupted one would have done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.checkpoint.checkpoint_handler import CheckpointHandler, OrchestrationMode

import verl_agentic.verl.checkpoints.epoch_boundary  # noqa: F401

STEPS = 4
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's data loader


class Engine:
    """An engine without weights."""

    def save_checkpoint(self, local_path: str, **_: Any) -> None:
        Path(local_path).mkdir(parents=True)

    def load_checkpoint(self, local_path: str) -> None:
        assert Path(local_path).is_dir()


class Run:
    """The loop of verl's SFT trainer, around its checkpoint handler, its loader and its sampler."""

    def __init__(self, folder: Path) -> None:
        rows: Any = list(range(4 * STEPS))
        self.sampler = DistributedSampler(rows, num_replicas=1, rank=0, shuffle=True, seed=3)
        self.loader = StatefulDataLoader(rows, batch_size=4, sampler=self.sampler, drop_last=True)
        self.handler = CheckpointHandler(
            cast("Any", Engine()), self.loader, default_local_dir=str(folder), mode=OrchestrationMode.RAY
        )
        self.step = self.handler.load_checkpoint()

    def batches(self, epochs: int, *, save_at: int) -> Iterator[tuple[int, list[int]]]:
        for epoch in range(self.step // STEPS, epochs):
            self.sampler.set_epoch(epoch)
            for batch in self.loader:
                self.step += 1
                if self.step == save_at:
                    self.handler.save_checkpoint(self.step)
                yield self.step, batch.tolist()
                if self.step == save_at:
                    return


@pytest.mark.parametrize("save_at", range(1, 3 * STEPS))
def test_a_run_that_is_resumed_trains_every_step_on_the_same_rows(tmp_path: Path, save_at: int) -> None:
    whole = list(Run(tmp_path / "whole").batches(3, save_at=99))
    assert [step for step, _ in whole] == list(range(1, 3 * STEPS + 1))
    begun = list(Run(tmp_path / "cut").batches(3, save_at=save_at))
    assert begun + list(Run(tmp_path / "cut").batches(3, save_at=99)) == whole


def test_a_resume_at_every_epoch_is_no_different(tmp_path: Path) -> None:
    whole = list(Run(tmp_path / "whole").batches(3, save_at=99))
    parts = [list(Run(tmp_path / "cut").batches(3, save_at=save_at)) for save_at in (4, 8, 99)]
    assert [batch for part in parts for batch in part] == whole
