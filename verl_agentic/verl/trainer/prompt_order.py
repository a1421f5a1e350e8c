"""Patches verl: the section `data.curriculum` chooses the next prompts (`CurriculumSettings`).

Wraps `create_rl_sampler` and `create_rl_dataset`, `_init_dataloader`, `_load_checkpoint` and `_next_train_batch` of
`PPOTrainer`, and `sample` and `_clear_groups` of the replay buffers.

It replaces verl's random or sequential sampler. Every finished group is reported to it, including those that dynamic
sampling drops. Its state is in `data.pt` of the checkpoint. With `group_size`, prompts get different numbers of
attempts, `rollout.n` on average per submission.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from torch.utils.data import Dataset
from verl.trainer.ppo.v1 import replay_buffer, trainer_base

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.registry import load_address
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.log.files.parquet import extra_of
from verl_agentic.sampling.curriculum import CurriculumSettings, load_curriculum
from verl_agentic.sampling.prompt_sampler import PromptColumns, PromptSampler
from verl_agentic.sampling.prompts.pass_rates import Floats
from verl_agentic.sampling.prompts.task_sets import TaskSet
from verl_agentic.verl.batches.row_store import last_rows, read_columns, split_key, unwrap
from verl_agentic.verl.features import all_features
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap
from verl_agentic.verl.trainer.trainer_features import curriculum_settings
from verl_agentic.verl.trainer.trainer_part import CurriculumPart

_log = logging.getLogger(__name__)
_EXTRA = "extra_info"


class GrowingDataset(Dataset):
    """verl's dataset, followed by tasks proposed during training."""

    def __init__(self, base: Any) -> None:
        """Starts with the rows of the files."""
        self.base = base
        self.tasks = TaskSet()

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, prompt: int) -> dict[str, Any]:
        if prompt < len(self.base):
            return self.base[prompt]
        # verl's own code processes the row like all others.
        view = copy.copy(self.base)
        view.dataframe = [self.row(prompt)]
        return view[0]

    def row(self, prompt: int) -> dict[str, Any]:
        """Returns a copy of a row with the columns of the files."""
        is_base = prompt < len(self.base)
        return copy.deepcopy(self.base.dataframe[prompt] if is_base else self.tasks.rows[prompt - len(self.base)])


class Proposals:
    """The file that proposers append tasks to."""

    def __init__(self, path: Path, check: Callable[[Mapping[str, Any]], bool], columns: Sequence[str]) -> None:
        """Reads nothing yet."""
        self._path, self._check, self._columns = path, check, set(columns)
        self._offset = 0

    def take(self, sampler: PromptSampler) -> None:
        """Proposes new tasks of the file; logs rejected ones with the reason."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._offset += len(line)
                self._propose_task(line, sampler)

    def _propose_task(self, line: bytes, sampler: PromptSampler) -> None:
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or set(row) != self._columns:
                raise ValueError(f"its columns must be {sorted(self._columns)}")
        except ValueError as cause:
            _log.warning("a proposed task was refused: %s, got %.80r", cause, line)
            return
        settings = sampler.settings
        difficulty = _read_value(row, settings.difficulty_key)
        verdict = sampler.propose(
            row,
            check=self._check,
            difficulty=0.0 if difficulty is None else float(difficulty),
            source=str(_read_value(row, settings.source_key)),
        )
        if verdict.place is None:
            _log.info("a proposed task was refused: %s", verdict.reason)


def make_sampler(data_config: Any, dataset: Any) -> PromptSampler | None:
    """Returns the sampler of `data.curriculum`, or None without that section.

    Raises:
        ConfigError: the section is invalid.
        DataError: the data lack a required column.
    """
    settings = curriculum_settings(data_config)
    if settings is None:
        return None
    base = dataset.base if isinstance(dataset, GrowingDataset) else dataset
    block = int(data_config.train_batch_size)
    sampler = PromptSampler(settings, _read_prompt_columns(base, settings), block=block, seed=data_config.get("seed"))
    if sampler.tasks is not None:
        dataset.tasks = sampler.tasks
    return sampler


def _read_prompt_columns(dataset: Any, settings: CurriculumSettings) -> PromptColumns:
    needs = load_curriculum(settings.name).needs
    sources = _read_column(dataset, settings.source_key) if "source" in needs else None
    return PromptColumns(
        count=len(dataset),
        difficulty_N=_read_numbers(dataset, settings.difficulty_key) if "difficulty" in needs else None,
        source_N=None if sources is None else np.array([str(source) for source in sources]),
        pass_rate_N=_read_numbers(dataset, settings.pass_rate_key, may_lack=True) if settings.pass_rate_key else None,
        rows_hash=hash_rows(dataset),
    )


def hash_rows(dataset: Any) -> str | None:
    """Returns a hash of the rows of verl's dataset in their order; None for a dataset without a table of rows.

    Prompts, sources, ground truths and extra fields count. Images and other media do not.
    """
    rows: Any = getattr(dataset, "dataframe", None)
    if not hasattr(rows, "select_columns"):
        return None
    names = {getattr(dataset, "prompt_key", "prompt"), "data_source", "reward_model", _EXTRA} & {*rows.column_names}
    total = hashlib.sha256()
    for row in rows.select_columns(sorted(names)):
        total.update(json.dumps(row, sort_keys=True, default=lambda value: type(value).__name__).encode())
    return total.hexdigest()


def _read_numbers(dataset: Any, key: str, *, may_lack: bool = False) -> Floats:
    """Returns a number per row, NaN where it is missing."""
    values = _read_column(dataset, key)
    for place, value in enumerate(values):
        if not (may_lack and value is None) and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise DataError(f"row {place} of data.train_files must have a number as {key}, got {value!r}; write one")
    return np.array([np.nan if value is None else float(value) for value in values])


def _read_column(dataset: Any, key: str) -> list[Any]:
    """Returns a value per row. Raises DataError if no row has one."""
    name = key.split(".", 1)[0]
    rows = getattr(dataset, "dataframe", None)
    if rows is None or name not in rows.column_names:
        has = "no column is known" if rows is None else f"got the columns {sorted(rows.column_names)}"
        raise DataError(f"data.curriculum reads {key!r} of every row, {has}; write it, or name another key")
    values = [_read_value({name: value}, key) for value in rows[name]]
    if all(value is None for value in values):
        raise DataError(f"data.curriculum reads {key!r} of every row, and none has it; write it, or name another key")
    return values


def _read_value(row: Mapping[str, Any], key: str) -> Any:
    name, _, inner = key.partition(".")
    value = row.get(name)
    if not inner:
        return value
    return (extra_of(value) if name == _EXTRA else value or {}).get(inner)


def outcomes_of(keys: Sequence[str], partition_id: str, *, name: str) -> dict[str, list[float]]:
    """Returns outcomes by group, one per valid session of the policy. Raises ConfigError if no episode reports them."""
    last = last_rows(keys)
    if not last:
        return {}
    columns = read_columns(list(last.values()), partition_id=partition_id, names=["extra_fields", GREEDY_SESSION])
    greedy = [int(place) for place in columns.get(GREEDY_SESSION, [-1] * len(last))]
    extras = columns.get("extra_fields", [{}] * len(last))
    numbers = [(extra or {}).get("reward_extra_info") or {} for extra in extras]
    if not any(name in row for row in numbers):
        raise ConfigError(
            f"data.curriculum.outcome={name} is in no episode's reward_extra_info, got {sorted(numbers[0])}; name "
            "one of them"
        )
    outcomes: dict[str, list[float]] = defaultdict(list)
    for (uid, session), row, baseline in zip(last, numbers, greedy, strict=True):
        group_outcomes = outcomes[uid]
        is_own = int(session) != baseline and not row.get("external")
        if name in row and is_own and not row.get("void"):
            group_outcomes.append(float(row[name]))
    return dict(outcomes)


@wrap(replay_buffer.ReplayBuffer, "_clear_groups")
def _report_and_clear(clear: Any, self: Any, partition_id: str, uids: set[str]) -> None:
    sampler = state_of(self).curriculum
    if sampler is not None and partition_id != "val":
        keys = [key for key in self.partitions[partition_id] if split_key(key)[0] in uids]
        sampler.report(outcomes_of(keys, partition_id, name=sampler.settings.outcome))
    clear(self, partition_id, uids)


@wrap(replay_buffer.ReplayBuffer, "sample")
@wrap(replay_buffer.ReplayBufferAsync, "sample")
def _sample_and_report(
    sample: Any, self: Any, global_steps: int, partition_id: str, batch_size: int
) -> tuple[Any, dict[str, Any]]:
    batch, metrics = sample(self, global_steps, partition_id, batch_size)
    state = state_of(self)
    if state.curriculum is None or partition_id == "val":
        return batch, metrics
    sampler = state.curriculum
    sampler.report(outcomes_of(batch.keys, partition_id, name=sampler.settings.outcome))
    complaint = sampler.rates.complaint()
    if complaint and not state.has_complained:
        state.has_complained = True
        _log.warning(complaint)
    return batch, {**metrics, **sampler.metrics()}


def check_group_sizes(settings: CurriculumSettings, group_size: int) -> None:
    """Checks that group sizes can be `rollout.n` on average. Raises ConfigError if they cannot."""
    bounds = settings.group_size
    if bounds is not None and not bounds.least <= group_size <= bounds.most:
        raise ConfigError(
            f"data.curriculum.group_size must have rollout.n between its bounds, got n={group_size} and "
            f"{bounds.least} to {bounds.most}"
        )


@wrap(trainer_base, "create_rl_sampler")
def _create_sampler(create: Any, data_config: Any, dataset: Any) -> Any:
    return make_sampler(data_config, dataset) or create(data_config, dataset)


@wrap(trainer_base, "create_rl_dataset")
def _create_dataset(
    create: Any, data_paths: Any, data_config: Any, *args: Any, is_train: bool = True, **kwargs: Any
) -> Any:
    dataset = create(data_paths, data_config, *args, is_train=is_train, **kwargs)
    grows = is_train and OmegaConf.select(data_config, "curriculum.task_set") is not None
    return GrowingDataset(dataset) if grows else dataset


@wrap(trainer_base.PPOTrainer, "_init_dataloader")
def _attach_sampler(init: Any, self: Any) -> None:
    init(self)
    sampler = self.train_dataloader.sampler
    if not isinstance(sampler, PromptSampler):
        return
    check_group_sizes(sampler.settings, int(self.config.actor_rollout_ref.rollout.n))
    state = state_of(self)
    state.curriculum = state_of(self.replay_buffer).curriculum = sampler
    state.proposals = _open_proposals(sampler, self.train_dataset)
    state.curriculum_parts = _load_parts(sampler, self.train_dataset, int(self.config.data.get("seed") or 0))


def _load_parts(sampler: PromptSampler, dataset: Any, seed: int) -> list[CurriculumPart]:
    """Returns the parts of methods that act beside a curriculum."""
    addresses = [address for features in all_features() for address in features.curriculum_parts]
    parts = [load_address(address, what="curriculum part")(sampler, dataset, seed) for address in addresses]
    return [part for part in parts if part is not None]


def _open_proposals(sampler: PromptSampler, dataset: Any) -> Proposals | None:
    settings = sampler.settings.task_set
    if settings is None:
        return None
    check = load_address(settings.check, what="data.curriculum.task_set.check")
    return Proposals(Path(settings.proposals), check, dataset.base.dataframe.column_names)


@wrap(trainer_base.PPOTrainer, "_load_checkpoint")
def _load_sampler(load: Any, self: Any) -> Any:
    loaded = load(self)
    if state_of(self).curriculum is not None:
        # torchdata restores a sampler at its first iteration, and groups may finish before that.
        self.train_dataloader_it = iter(self.train_dataloader)
    return loaded


@wrap(trainer_base.PPOTrainer, "_next_train_batch")
def _next_batch(next_batch: Any, self: Any, num_prompts: int | None = None) -> Any:
    state = state_of(self)
    sampler = state.curriculum
    if sampler is None:
        return next_batch(self, num_prompts)
    sampler.step = self.global_steps
    for part in state.curriculum_parts:
        part.before_batch(self.global_steps)
    if state.proposals is not None:
        state.proposals.take(sampler)
    batch = next_batch(self, num_prompts)
    uids = [str(unwrap(uid)) for uid in batch["uid"]]
    prompts = sampler.tie(uids)
    for part in state.curriculum_parts:
        part.after_batch(batch, uids)
    sizes = sampler.group_sizes(prompts, group_size=int(self.config.actor_rollout_ref.rollout.n))
    if sizes is not None:
        batch["__rollout_n__"] = torch.from_numpy(sizes)
    return batch
