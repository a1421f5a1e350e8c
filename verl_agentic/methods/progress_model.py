"""SPA's progress estimator: a language model with a linear head, whose values at ends of turns sum to the outcome."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.base.settings import Settings, setting
from verl_agentic.rewards.sample import Sample

_HEAD = "progress_head.pt"


class ProgressTraining(Settings):
    """The training of a progress estimator. The defaults are ours."""

    section: ClassVar[str] = "progress"

    steps: int = setting(300, min=1)
    """Updates of the weights."""
    batch: int = setting(8, min=1)
    """Episodes of an update."""
    lr: float = setting(1e-5, above=0)
    """Learning rate of the language model; that of the head is 10 times as high."""
    max_tokens: int = setting(4096, min=16)
    """Tokens of an episode; of a longer one the end is read, and turns before it contribute 0."""
    seed: int = 0
    """Order of the episodes."""


class ProgressModel:
    """Estimates the contribution of each turn to the outcome of its episode.

    The head is linear in the last hidden state at the last token of a turn. It begins at 0.

    Paper: https://arxiv.org/abs/2505.20732
    Deviations: the authors' head is linear in the logits of the language model.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", max_tokens: int = ProgressTraining.max_tokens) -> None:
        """Loads a language model, and the head beside it where `save` has written one.

        Raises:
            DataError: the folder holds no model.
        """
        from transformers import AutoModel, AutoTokenizer

        with boundary(DataError, f"loading the progress model {folder}"):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            self.model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self.head = torch.nn.Linear(self.model.config.hidden_size, 1).to(device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._device, self._max_tokens = device, max_tokens
        if (folder / _HEAD).is_file():
            state = torch.load(folder / _HEAD, map_location=device, weights_only=True)
            self._max_tokens = int(state.pop("max_tokens"))
            self.head.load_state_dict(state)

    def __call__(self, sample: Sample) -> list[float]:
        """Returns the contribution of each turn, in order."""
        with torch.inference_mode():
            return self.contributions(sample).tolist()

    def contributions(self, sample: Sample) -> Tensor:
        """Returns `[K]` float32 with gradient: the contribution of each turn of an episode."""
        ids, ends = self._encode(sample)
        num_cut = max(0, len(ids) - self._max_tokens)
        places = [end - num_cut for end in ends if end >= num_cut]
        values_K = torch.zeros(len(ends), device=self._device)
        if not places:
            return values_K
        hidden_TH = self.model(input_ids=torch.tensor([ids[num_cut:]], device=self._device)).last_hidden_state[0]
        read_K = self.head(hidden_TH[places]).squeeze(-1)
        return torch.cat([values_K[: len(ends) - len(places)], read_K])

    def save(self, folder: Path) -> None:
        """Writes model, tokenizer and head."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        torch.save({**self.head.state_dict(), "max_tokens": torch.tensor(self._max_tokens)}, folder / _HEAD)

    def _encode(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Returns the ids of an episode, and the place of the last token of each turn."""
        ids: list[int] = []
        ends: list[int] = []

        def add(text: str) -> None:
            ids.extend(self.tokenizer(text, add_special_tokens=False)["input_ids"])

        add("".join(f"{message.role}\n{message.content}\n" for message in sample.prompt))
        for turn in sample.turns:
            add(f"{turn.text}\n")
            ends.append(len(ids) - 1)
            add("".join(f"{text}\n" for text in turn.observations))
        return ids, ends


def train_progress(
    model: ProgressModel,
    episodes: Sequence[tuple[Sample, float]],
    settings: ProgressTraining,
    *,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Trains on `(sum of contributions - outcome)^2`, the mean over the episodes of an update.

    Args:
        model: changed in place.
        episodes: finished episodes with their outcomes.
        settings: of the training.
        on_step: called with the number of each step and its loss.

    Raises:
        DataError: all outcomes are equal.

    Paper: https://arxiv.org/abs/2505.20732
    """
    if len({outcome for _, outcome in episodes}) < 2:
        raise DataError(
            f"a progress estimator needs episodes with different outcomes, got {len(episodes)} with equal ones; sample "
            "more"
        )
    groups = [
        {"params": list(model.model.parameters()), "lr": settings.lr},
        {"params": list(model.head.parameters()), "lr": 10 * settings.lr},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    order, generator = [], random.Random(settings.seed)
    for step in range(1, settings.steps + 1):
        total = 0.0
        for _ in range(settings.batch):
            order = order or generator.sample(episodes, len(episodes))
            sample, outcome = order.pop()
            loss = (model.contributions(sample).sum() - outcome).square() / settings.batch
            loss.backward()  # one episode at a time: their lengths differ, and memory is that of one
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_([weight for group in groups for weight in group["params"]], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        on_step(step, total)


@functools.lru_cache(maxsize=2)
def load_progress_model(folder: str) -> ProgressModel:
    """Returns a trained estimator, loaded once in each process. Raises DataError if the folder has no head."""
    if not (Path(folder) / _HEAD).is_file():
        raise DataError(f"no progress estimator in {folder}; make one with `verl-agentic reward progress`")
    return ProgressModel(Path(folder))
