"""Plays episodes of which many hang, raise, lose their sandbox, flood or call nonsense, all at once, and looks at how
each of them ends, how long that takes, and what is left behind.

python benchmarks/faults.py [--quick] [--episodes N]

Of the episodes 10 % hang (in the policy, the start, a step, a tool, a thread, the scorer, the closing; some ignore
their cancellation), 10 % raise, and 10 % lose their sandbox: a real one of namespaces, whose first process is killed.
What fails once must be mended by a retry, and what always fails must be void; everything else must be answered.

Then hostile policies (`_hostile_actions`) play in the environments with a sandbox or a judge: full disks, deep trees,
links, floods, slow commands, long names, filtered words. What they cause must be trained.

`wrong_stop_reasons`: episodes whose reason, kind of error, number of retries, mask or counts are not what they must be.
`leftovers`: tasks, processes, control groups, folders, mounts and descriptors that outlive the episodes.
`void_by_policy`, `raised`: hostile episodes that are void, and that raised.
`slowest_over_deadline`: the time until the last episode has returned, over the deadline of an episode.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from _fault_kinds import KINDS, Kind, Policy, Stage, world_maker
from _hostile_actions import play_many
from _leftovers import groups, leftovers
from _report import Target, median, progress, report
from transformers import AutoTokenizer
from verl.experimental.agent_loop import tool_parser
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import ChatTemplateCodec
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.pools.process_pool import open_pools
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

_SHARES = {"hangs": 0.1, "raises": 0.1, "loses_sandbox": 0.1, "floods": 0.05, "malformed": 0.05}
_DEADLINE_S, _QUICK_DEADLINE_S = 30.0, 20.0
_HOSTILE, _QUICK_HOSTILE = 240, 48
_ROW = EnvRow(prompt=(Message("user", "What is 6*7?"),))


def main() -> int:
    """Runs the episodes and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="160 episodes with shorter deadlines")
    parser.add_argument("--episodes", type=int, default=256)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # every fault is logged, as it should be
    deadline_s = _QUICK_DEADLINE_S if options.quick else _DEADLINE_S
    episodes, hostile = (160, _QUICK_HOSTILE) if options.quick else (options.episodes, _HOSTILE)
    return asyncio.run(_faults(episodes, deadline_s, hostile))


async def _faults(episodes: int, deadline_s: float, hostile_episodes: int) -> int:
    with tempfile.TemporaryDirectory(prefix="faults_") as folder:
        tokenizer, codec = _chat(Path(folder))
    kinds = _mixed(episodes)
    good = [kind if kind.group == "good" else KINDS[0] for kind in kinds]
    groups_before = set(groups())
    await _play(KINDS[:2], tokenizer, codec, deadline_s)  # what is opened once stays open
    descriptors = len(os.listdir("/proc/self/fd"))
    undisturbed = await _play(good, tokenizer, codec, deadline_s)
    disturbed = await _play(kinds, tokenizer, codec, deadline_s)
    hostile = await play_many(hostile_episodes, codec=codec, tokenizer=tokenizer, seed=0)
    for pool in open_pools():
        await asyncio.to_thread(pool.close)
    gc.collect()
    left = await leftovers(groups_before, settle_s=2 * deadline_s)
    opened = len(os.listdir("/proc/self/fd")) - descriptors
    wrong = [complaint for complaint in disturbed.complaints + undisturbed.complaints if complaint is not None]
    endings = Counter(ending.partition(":")[0] for _, ending in hostile)
    not_trained = [f"{one.env_id} {one.turns}: {ending}"[:1_000] for one, ending in hostile if ending != "trained"]
    for problem in [*wrong[:20], *left[:20], *not_trained[:20]]:
        progress(problem)
    slowest_s = max(disturbed.seconds)
    return report(
        "faults",
        ratios={
            "slowest_over_deadline": median([slowest_s / deadline_s]),
            "good_episodes_beside_faults": median([disturbed.good_s / undisturbed.good_s]),
        },
        figures={
            "episodes": episodes,
            "wrong_stop_reasons": len(wrong),
            "hostile_episodes": len(hostile),
            "void_by_policy": endings["void"],
            "raised": endings["raised"],
            "leftovers": len(left) + max(0, opened),
            "deadline_s": deadline_s,
            "slowest_s": median([slowest_s]),
            "good_episode_s": median([disturbed.good_s]),
            **{f"faults.{group}": count for group, count in sorted(Counter(k.group for k in kinds).items())},
            **{f"stop.{reason}": count for reason, count in sorted(disturbed.stops.items())},
            "kinds_of_faults": len({kind.name for kind in kinds if kind.group != "good"}),
        },
        targets={
            "wrong_stop_reasons": Target(bound=0, at_least=False),
            "void_by_policy": Target(bound=0, at_least=False),
            "raised": Target(bound=0, at_least=False),
            "leftovers": Target(bound=0, at_least=False),
            "slowest_over_deadline": Target(bound=1.5, at_least=False),
        },
    )


def _chat(folder: Path) -> tuple[Any, ChatTemplateCodec]:
    make_tiny_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer, ChatTemplateCodec(
        builder=create_continuous_token_builder(tokenizer, hf_model_type="qwen3"),
        parser=tool_parser.ToolParser.get_tool_parser("hermes", tokenizer),
        tokenizer=tokenizer,
    )


def _mixed(episodes: int) -> list[Kind]:
    """Returns the kind of every episode, in no order; every kind that fits occurs."""
    mixed: list[Kind] = []
    for group, share in _SHARES.items():
        mixed += itertools.islice(itertools.cycle(k for k in KINDS if k.group == group), round(share * episodes))
    mixed += itertools.islice(itertools.cycle(k for k in KINDS if k.group == "good"), episodes - len(mixed))
    random.Random(0).shuffle(mixed)
    return mixed


class _Played:
    """Counts of how the episodes of one run ended."""

    def __init__(self, kinds: list[Kind], outcomes: list[tuple[Any, float]]) -> None:
        self.seconds = [seconds for _, seconds in outcomes]
        self.complaints = [kind.complaint(episode) for kind, (episode, _) in zip(kinds, outcomes, strict=True)]
        self.stops = Counter(episode.stop_reason.value for episode, _ in outcomes)
        self.good_s = median([s for kind, s in zip(kinds, self.seconds, strict=True) if kind.group == "good"])


async def _play(kinds: list[Kind], tokenizer: Any, codec: ChatTemplateCodec, deadline_s: float) -> _Played:
    """Plays the episodes all at once, with a pool of their own."""
    pool = SandboxPool(NamespaceBackend(), PoolConfig(size=64, warm=8))
    await pool.start()
    stage = Stage(tokenizer, pool, hang_s=1.2 * deadline_s)
    limits = EpisodeLimits(
        max_response_tokens=3_000,
        max_context_tokens=4_000,
        max_turns=10_000,
        max_observation_tokens=500,
        episode_timeout_s=deadline_s,
        turn_timeout_s=deadline_s / 3,
        start_timeout_s=deadline_s / 3,
        score_timeout_s=deadline_s / 10,
        close_timeout_s=deadline_s / 10,
        retry_wait_s=0.1,
    )

    async def one(number: int, kind: Kind) -> tuple[Any, float]:
        began = time.monotonic()
        endless = kind.fault == "step dawdles"
        room = {"max_response_tokens": 10**7, "max_context_tokens": 10**7} if endless else {}
        setup = EpisodeSetup(
            policy=Policy(stage, kind),
            codec=codec,
            tokenizer=tokenizer,
            limits=EpisodeLimits(**{**vars(limits), **room}),
        )
        episode = await run_episode(
            _ROW,
            make_env=world_maker(stage, kind, tool_timeout_s=deadline_s / 10),
            setup=setup,
            request_id=f"episode {number}",
        )
        return episode, time.monotonic() - began

    try:
        outcomes = await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
    finally:
        stage.release.set()
        await pool.close()
    return _Played(kinds, list(outcomes))


if __name__ == "__main__":
    sys.exit(main())
