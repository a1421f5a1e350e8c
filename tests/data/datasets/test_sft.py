"""Demonstrations: their ids and masks are those of the rollout, as verl's own SFT trainer reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import END, ROW, FakeEnv, encode, episode_setup
from omegaconf import OmegaConf

from verl_agentic.base.errors import DataError
from verl_agentic.data.datasets.sft import TrajectoryDataset, write_sft
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.log.files.record_files import read_json_lines


async def play(*turns: str, step_hook: Any = None) -> Episode:
    """Plays an episode of single-character tokens; the environment answers a call with 42."""
    return await run_episode(
        ROW,
        make_env=lambda row: FakeEnv(row, step_hook=step_hook),
        setup=episode_setup(
            ScriptedPolicy(
                lambda messages: turns[sum(m.role == "assistant" for m in messages)], encode=encode, end_ids=[END]
            )
        ),
        request_id="r",
    )


class Tokenizer:
    def __len__(self) -> int:
        return 256


def config(**changes: Any) -> Any:
    return OmegaConf.create({"pad_mode": "no_padding", "max_length": 256, **changes})


async def test_ids_and_loss_mask_are_those_of_the_rollout(tmp_path: Path) -> None:
    episodes = [await play("call:a", "42"), await play("41")]
    assert write_sft(episodes, tmp_path / "sft.jsonl") == 2
    for episode, (_, row) in zip(episodes, read_json_lines(tmp_path / "sft.jsonl"), strict=True):
        (trajectory,) = episode.trajectories
        assert row["input_ids"] == trajectory.prompt_ids + trajectory.response_ids
        assert row["loss_mask"] == [0] * len(trajectory.prompt_ids) + trajectory.response_mask
        assert 0 in trajectory.response_mask or len(episode.actions) == 1


async def test_a_void_episode_is_no_demonstration(tmp_path: Path) -> None:
    def broken(_: object) -> None:
        raise OSError("gone")

    assert write_sft([await play("call:a", step_hook=broken), await play("42")], tmp_path / "sft.jsonl") == 1


async def test_verls_sft_trainer_reads_the_file_through_the_shared_configuration(tmp_path: Path) -> None:
    from verl.trainer.sft_trainer import create_sft_dataset
    from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

    import verl_agentic.config

    folder = Path(verl_agentic.config.__file__).parent
    shared = OmegaConf.load(folder / "agentic" / "cpu_sft.yaml").data
    episodes = [await play("call:a", "42"), await play("41")]
    write_sft(episodes, tmp_path / "sft.jsonl")
    dataset = create_sft_dataset(
        [str(tmp_path / "sft.jsonl")], OmegaConf.merge(shared, {"max_length": 256}), Tokenizer(), None
    )
    assert len(dataset) == 2
    batch = SFTTensorCollator(DatasetPadMode.NO_PADDING)([dataset[0], dataset[1]])
    for i, episode in enumerate(episodes):
        (trajectory,) = episode.trajectories
        assert batch["input_ids"][i].tolist() == trajectory.token_ids
        assert batch["loss_mask"][i].sum() == trajectory.num_model_tokens
        assert batch["position_ids"][i].tolist() == list(range(len(trajectory.token_ids)))


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


GOOD = {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_ids": [1, 2, 3]}, "input_ids"),
        ({"input_ids": [], "loss_mask": []}, "input_ids"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "input_ids"),
        ({"input_ids": [1, 2], "loss_mask": [0, 0]}, "input_ids"),
        ({"input_ids": [1, 2], "loss_mask": [2, 1]}, "input_ids"),
        ({"input_ids": [1, 256], "loss_mask": [0, 1]}, "256"),
        ({"input_ids": [-1, 2], "loss_mask": [0, 1]}, "-1"),
        ({"input_ids": [1] * 9, "loss_mask": [1] * 9}, "data.max_length"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "sft.jsonl", GOOD, row)
    with pytest.raises(DataError, match=message) as caught:
        TrajectoryDataset(path, Tokenizer(), config(max_length=8))
    assert f"{path}:2" in str(caught.value)


def test_padding_modes_that_would_pad_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "sft.jsonl", GOOD)
    with pytest.raises(DataError, match=r"data\.pad_mode"):
        TrajectoryDataset(path, Tokenizer(), config(pad_mode="right"))


def test_several_files_are_read_in_order_and_max_samples_cuts(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", GOOD)
    second = write(tmp_path / "b.jsonl", {"input_ids": [7, 8], "loss_mask": [0, 1]})
    dataset = TrajectoryDataset([first, second], Tokenizer(), config())
    assert [row["input_ids"].tolist() for row in map(dataset.__getitem__, range(len(dataset)))] == [[1, 2, 3], [7, 8]]
    assert dataset[1]["loss_mask"].dtype == torch.int64
    assert len(TrajectoryDataset([first, second], Tokenizer(), config(), max_samples=1)) == 1


def test_no_row_learns_the_first_token_of_the_next_one(tmp_path: Path) -> None:
    from verl.workers.utils.losses import sft_loss

    rows = [{"input_ids": ids, "loss_mask": [1] * len(ids)} for ids in ([1, 2, 3], [4, 5])]  # as of `--as cpt`
    dataset = TrajectoryDataset(write(tmp_path / "cpt.jsonl", *rows), Tokenizer(), config())
    masks = torch.nested.nested_tensor([dataset[0]["loss_mask"], dataset[1]["loss_mask"]], layout=torch.jagged)
    log_probs = torch.zeros(5, requires_grad=True)
    model_output = {"log_probs": torch.nested.nested_tensor_from_jagged(log_probs, masks.offsets())}
    loss, _ = sft_loss(None, model_output, {"dp_size": 1, "batch_num_tokens": 1, "loss_mask": masks})
    loss.backward()
    assert log_probs.grad.tolist() == [-1, -1, 0, -1, 0], "the last position of a row predicts nothing"
