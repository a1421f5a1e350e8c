"""Reports of waiting episodes: in the run's folder, in the log, and from the trainer while it polls."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.trainer.ppo.v1 import replay_buffer as verl_buffer
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.workers.rollout.llm_server import LLMServerClient

from verl_agentic.episode.trace import timeline
from verl_agentic.observe.live.stuck_episodes import WaitingOptions
from verl_agentic.observe.live.time_ledger import EpisodeTime
from verl_agentic.verl import log_and_continue
from verl_agentic.verl.batches import row_store
from verl_agentic.verl.extensions.monitoring import episode_waits, trainer_waits
from verl_agentic.verl.extensions.monitoring.episode_waits import EPISODE_TIME, WaitingReporter
from verl_agentic.verl.extensions.monitoring.trainer_waits import PollWatch
from verl_agentic.verl.object_state import state_of

FAST = WaitingOptions(stuck_after_s=0.2, report_every_s=0.05)


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("waiting-*.json")]


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "never"
        await asyncio.sleep(0.02)
    return found


@pytest.fixture
def reporter(tmp_path: Path) -> Iterator[Callable[..., WaitingReporter]]:
    made: list[WaitingReporter] = []

    def make(options: WaitingOptions = FAST, *, blocked_s: float = 0.3) -> WaitingReporter:
        made.append(WaitingReporter(options, loop=asyncio.get_running_loop(), folder=tmp_path, blocked_s=blocked_s))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.slow
async def test_what_hangs_is_in_the_file_and_in_one_warning_and_the_file_goes_when_nothing_waits(
    tmp_path: Path, reporter: Callable[..., WaitingReporter], caplog: pytest.LogCaptureFixture
) -> None:
    reporter(WaitingOptions(stuck_after_s=1.0, report_every_s=FAST.report_every_s), blocked_s=60.0)
    with timeline.recording(uid="ab12", session=1, env="python_math", agent="env_agent", step=7):
        with timeline.span("tool", label="search", turn=2):
            (report,) = await until(lambda: reports(tmp_path))
            (episode,) = report["episodes"]
            assert (episode["uid"], episode["env"], episode["tool"], episode["step"]) == (
                "ab12",
                "python_math",
                "search",
                7,
            )
            assert abs(time.time() - episode["since"]) < 2 and report["num_running"] == 1
            assert report["report_every_s"] == FAST.report_every_s
            await until(lambda: caplog.messages)
            await asyncio.sleep(0.1)  # it is not twice as old
        (line,) = caplog.messages
    said = r"stuck: episode ab12/1 \(environment 'python_math', turn 2\) has waited \d s for tool 'search'"
    assert re.match(said, line)
    await until(lambda: not list(tmp_path.iterdir()))


@pytest.mark.slow
async def test_a_blocked_event_loop_is_told_by_the_code_that_blocks_it(
    tmp_path: Path, reporter: Callable[..., WaitingReporter], caplog: pytest.LogCaptureFixture
) -> None:
    def parse_a_gigabyte() -> None:
        time.sleep(0.9)

    reporter()
    with timeline.recording(uid="ab12"):
        await asyncio.sleep(0.2)
        parse_a_gigabyte()
        blocked = reports(tmp_path)
        lines = [m for m in caplog.messages if "event loop" in m and "has been blocked" in m]
        assert any("all its 1 episodes" in line and "in parse_a_gigabyte" in line for line in lines)
        await until(lambda: reports(tmp_path)[0]["blocked_by"] == [])
    assert blocked[0]["loop_lag_s"] > 0.3 and any("parse_a_gigabyte" in line for line in blocked[0]["blocked_by"])


async def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    options = WaitingOptions(stuck_after_s=100.0, report_every_s=1.0)
    made = WaitingReporter(options, loop=asyncio.get_running_loop(), folder=tmp_path / "file", blocked_s=9.0)
    with timeline.recording(uid="a"):
        made.look()
    assert "what episodes wait for is not in" in caplog.messages[0]


# verl's own agent loops, as its worker runs them.


class ToolLoop:
    """Imitates a turn of verl's `tool_agent`, with verl's own code for calls."""

    tools = SimpleNamespace()

    async def run(self, client: Any) -> None:
        await generate(client)
        for name in ("lookup", "no_such_tool"):
            data = SimpleNamespace(_active_tools={"lookup": None})
            call = SimpleNamespace(name=name, arguments="not JSON")  # answered before a tool is asked
            await ToolAgentLoop._call_tool(self, call, {}, data)  # type: ignore[attr-defined]
        await generate(client)


async def generate(client: Any) -> None:
    await LLMServerClient.generate(client, "r", prompt_ids=[1], sampling_params={})


class FakeClient:
    """The client's seams: which server, and what it answers."""

    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "agentic"}}})

    async def _acquire_server(self, request_id: str, **_: Any) -> Any:
        return "server", SimpleNamespace(generate=SimpleNamespace(remote=self._answer))

    async def _answer(self, **request: Any) -> Any:
        await asyncio.sleep(0.01)
        return SimpleNamespace(token_ids=[1], extra_fields={}, log_probs=None, stop_reason="completed")

    def _vllm_request_id(self, request_id: str) -> str:
        return request_id

    def _release_server(self, server: str, request_id: str | None = None) -> None:
        pass


async def test_of_verls_own_loops_turns_calls_and_rewards_are_seen_and_sent_with_the_last_row(tmp_path: Path) -> None:
    class Worker(AgentLoopWorker):
        def __init__(self) -> None:
            self.reward_loop_worker_handles = ["one"]

    async def score(self: Any, outputs: list[Any], kwargs: Any) -> None:
        (playing,) = timeline.running()
        waits_for = playing.waits_for()
        assert waits_for is not None and waits_for.kind == "reward" and playing.uid == "u1"
        await asyncio.sleep(0.01)
        outputs[-1].reward_score = 1.0

    async def play(self: Any, sampling_params: Any, trajectory: Any, *, agent_name: str, **kwargs: Any) -> Any:
        await ToolLoop().run(FakeClient())
        outputs = [SimpleNamespace(extra_fields={}, reward_score=None) for _ in range(2)]
        await episode_waits._compute_score_watched(score, self, outputs, kwargs={})
        return outputs

    worker = Worker()
    worker.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"custom": {"agentic": {}}}}})
    trajectory = {"step": 3, "validate": False}
    first, last = await episode_waits._run_watched(
        play, worker, {}, trajectory, agent_name="tool_agent", uid="u1", session_id=2
    )
    for made in list(episode_waits._reporters.values()):
        made.stop()
    episode_waits._reporters.clear()
    assert first.extra_fields == {EPISODE_TIME: None}
    spent = EpisodeTime.from_dict(last.extra_fields[EPISODE_TIME])
    assert [(s.kind, s.label, s.turn) for s in spent.spans] == [
        ("generate", "", 0),
        ("tool", "lookup", 0),
        ("tool", "unknown", 0),
        ("generate", "", 1),
        ("reward", "", -1),
    ]
    assert time.time() - 30 < spent.began_at < spent.ended_at <= time.time()
    assert not timeline.running()


# The trainer.


def buffer(**options: Any) -> Any:
    made = ReplayBuffer(
        trainer_mode="sync",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        poll_interval=0.01,
    )
    state_of(made).poll_watch = PollWatch(options=FAST, group_sizes={"train": 4, "val": 1}, **options)
    return made


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.passed_s, self.began_at = 0.0, time.time()

    def monotonic(self) -> float:
        return self.passed_s

    def time(self) -> float:
        return self.began_at + self.passed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


class Queue:
    """The keys that a buffer finds, poll by poll."""

    def __init__(self, *polls: dict[str, dict[str, Any]], clock: Clock) -> None:
        self.polls, self.clock = polls, clock

    def kv_list(self) -> dict[str, Any]:
        return {"train": self.polls[self.clock.passed_s > 0.5]}

    def kv_clear(self, **_: Any) -> None:
        pass

    def kv_batch_get(self, **_: Any) -> dict[str, Any]:
        return {}


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(early: dict[str, Any], late: dict[str, Any]) -> None:
        clock = Clock()
        queue = Queue(early, late, clock=clock)
        for module in (verl_buffer, row_store):
            monkeypatch.setattr(module, "tq", queue)
        for module in (verl_buffer, trainer_waits):
            monkeypatch.setattr(module, "time", clock)

    return use


def prompt(status: str) -> dict[str, Any]:
    return {"is_prompt": True, "status": status, "global_steps": 1}


def test_a_trainer_that_waits_too_long_says_how_many_episodes_are_missing_and_names_the_oldest(
    tmp_path: Path, polls: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    rows = {f"u1_{n}_0": {} for n in range(4)} | {"u2_0_0": {}, "u2_0_1": {}, "u2_3_0": {}}
    early = {"u1": prompt("finished"), "u2": prompt("running"), "u3": prompt("pending"), **rows}
    late = {**early, "u2": prompt("finished"), "u3": prompt("failure")}
    polls(early, late)
    now = time.time()
    episode = {"uid": "u2", "session": 1, "env": "math", "agent": "env_agent", "activity": "tool", "tool": "python"}
    episode |= {"turn": 2, "since": now - 300, "age_s": 1.0, "episode_s": 400.0}
    report = {"time": now, "host": "node7", "pid": 12, "episodes": [episode]}
    (tmp_path / "waiting-node7-12-ab.json").write_text(json.dumps(report))
    gone = {**report, "time": now - 3600, "host": "gone"}
    (tmp_path / "waiting-gone-12-ab.json").write_text(json.dumps(gone))
    (tmp_path / "waiting-x-12-ab.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        buffer(run_dir=tmp_path).sample(global_steps=1, partition_id="train", batch_size=3)
    first, *others = (m for m in caplog.messages if m.startswith("stuck"))
    assert first == (
        "stuck: the trainer has waited 0 s for 3 groups: 1 have ended, 0 failed, 1 are played, 2 of their episodes "
        "missing, 1 have not begun. The oldest: episode u2/1 (environment 'math', turn 2) has waited 300 s for tool "
        "'python'; it began 400 s ago, on node7, pid 12"
    )
    assert len(others) == 1, "at twice the age; half a second is no more than that"


def test_a_trainer_without_a_folder_says_where_to_look_and_a_quick_one_says_nothing(
    polls: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    done = {"u1": prompt("finished"), "u1_0_0": {}}
    polls({"u1": prompt("running")}, done)
    made = buffer(run_dir=None)
    made.sample(global_steps=1, partition_id="train", batch_size=1)
    first = next(m for m in caplog.messages if m.startswith("stuck"))
    assert first.endswith("The oldest: unknown: look for `stuck` in the log of the agent-loop workers")
    assert "4 of their episodes missing" in first
    caplog.clear()
    made.sample(global_steps=2, partition_id="train", batch_size=1)
    assert not [m for m in caplog.messages if m.startswith("stuck")]
    assert trainer_waits.oldest(Path("/nowhere"), now_at=0.0) == []


@pytest.mark.parametrize(
    ("data", "missing"),
    [({}, ", 4 of their episodes missing"), ({"curriculum": {"group_size": {"least": 2, "most": 8}}}, "")],
)
def test_what_is_missing_is_left_out_where_groups_have_different_sizes(data: dict[str, Any], missing: str) -> None:
    rollout = {"n": 4, "val_kwargs": {"n": 1}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": data})
    made = trainer_waits._build_with_watch(lambda self: buffer(run_dir=None), SimpleNamespace(config=config))
    made.running_keys["train"].add("u1")
    state_of(made).poll_watch.begin(1)
    state_of(made).poll_watch.began -= 200.0
    said = state_of(made).poll_watch.look(made, "train")
    assert said is not None and f"1 are played{missing}, 0 have not begun" in said


def test_a_report_that_cannot_be_read_ends_no_wait_of_the_trainer_and_is_logged_once(
    tmp_path: Path, polls: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_and_continue, "_logged", set())
    (tmp_path / "waiting-other-1-ab.json").write_text(json.dumps({"time": time.time(), "pid": 1}))
    polls({"u1": prompt("running")}, {"u1": prompt("finished"), "u1_0_0": {}})
    batch, _ = buffer(run_dir=tmp_path).sample(global_steps=1, partition_id="train", batch_size=1)
    assert list(batch.keys) == ["u1_0_0"]
    told = [m for m in caplog.messages if "cannot be told" in m]
    assert told == ["what the trainer waits for cannot be told (said once); the run goes on"]
