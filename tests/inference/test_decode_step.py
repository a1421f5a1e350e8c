"""Decoding by recorded graphs: the same tokens and log-probs as without, whatever the batch does in between."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from op_recorder import record_operations
from reference_model import Stepped, hf_greedy, plain_log_probs, prompt, serve_mixed

from verl_agentic.cpu.inference.decode_step import Capture, DecodeStep
from verl_agentic.cpu.inference.request import Generation


class Counted:
    """Captures, and counts captures and replays."""

    def __init__(self, capture: Capture = record_operations) -> None:
        self._capture = capture
        self.captures = self.replays = 0

    def __call__(self, work: Any) -> Any:
        replay = self._capture(work)
        self.captures += 1

        def counted() -> None:
            self.replays += 1
            replay()

        return counted


def stepped_by(model: Any, tokenizer: Any, capture: Capture | None, **config: Any) -> Stepped:
    stepped = Stepped(model, tokenizer, **config)
    stepped.scheduler._decode_step = DecodeStep(stepped.scheduler._decoder, capture=capture)
    return stepped


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 6))])
def test_graphs_sample_what_plain_steps_sample(seed: int, model: Any, tokenizer: Any) -> None:
    config = {"prefill_tokens": 40, "max_running": 12, "max_cached_tokens": 2_000, "seed": 3}
    capture = Counted()
    graphs = serve_mixed(stepped_by(model, tokenizer, capture, **config), seed=seed)
    plain = serve_mixed(stepped_by(model, tokenizer, None, **config), seed=seed)
    assert capture.replays > 20 and capture.captures > 3
    assert [one.token_ids for one in graphs] == [one.token_ids for one in plain]
    for one, other in zip(graphs, plain, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_a_graph_computes_with_the_newest_weights(model: Any, tokenizer: Any) -> None:
    capture = Counted()
    stepped = stepped_by(model, tokenizer, capture)
    for factor in (1.0, 1.5):
        weights = {name: factor * tensor for name, tensor in model.state_dict().items()}
        stepped.scheduler.forget_prefixes()
        stepped.scheduler._decoder.update(weights.items())
        captures = capture.captures
        outcome = stepped.submit(prompt(0, 40), max_tokens=12)
        stepped.finish()
        (generation,) = outcome
        assert isinstance(generation, Generation)
        assert generation.token_ids == hf_greedy(model, prompt(0, 40), 12, eos_token_id=None)
        assert generation.log_probs == pytest.approx(
            plain_log_probs(model, prompt(0, 40), generation.token_ids), abs=1e-4
        )
    assert captures == capture.captures > 0  # by the graphs of the old weights


def test_few_graphs_serve_all_numbers_of_rows(model: Any, tokenizer: Any) -> None:
    capture = Counted()
    stepped = stepped_by(model, tokenizer, capture)
    for case in range(40):
        stepped.submit(prompt(case, 10), max_tokens=2 + case)
    stepped.finish()
    assert capture.captures <= 4 and capture.replays > 30


def test_what_cannot_be_captured_runs_without_graphs_and_is_logged(
    model: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []

    def fail(work: Any) -> Any:
        attempts.append(work)
        raise RuntimeError("operation not permitted when stream is capturing")

    stepped = stepped_by(model, tokenizer, fail)
    with caplog.at_level(logging.WARNING):
        outcome = stepped.submit(prompt(0, 20), max_tokens=12)
        stepped.finish()
    (generation,) = outcome
    assert isinstance(generation, Generation)
    assert generation.token_ids == hf_greedy(model, prompt(0, 20), 12, eos_token_id=None)
    assert len(attempts) == 1 and "without CUDA graphs" in caplog.text


def test_released_graphs_hold_nothing(model: Any, tokenizer: Any) -> None:
    stepped = stepped_by(model, tokenizer, record_operations)
    stepped.submit(prompt(0, 20), max_tokens=8)
    stepped.finish()
    step = stepped.scheduler._decode_step
    assert step._graphs
    stepped.scheduler.forget()
    assert not step._graphs and step._buffers is None and step._keys is None
