"""No component pays for an answer that is empty, and none leaves its range, whatever an episode holds.

Every component stands in `CASES` with a row, an environment and a model that pay as much as they can.
"""

from __future__ import annotations

import inspect
import json
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from judges import canary_of, completion, verdict
from samples import call, sample, turn
from services import answering  # pyright: ignore[reportMissingImports]

from verl_agentic.graders.models.discriminator import Discriminator
from verl_agentic.rewards.answers.empty_work import is_empty, is_empty_box, is_silent
from verl_agentic.rewards.component import Component, Graded, component_names, load_component
from verl_agentic.rewards.sample import Sample

QA = {"ground_truth": ["Paris", "yes"]}
MATHS = {"ground_truth": "42"}
TEXT_MATHS = {"ground_truth": r"x^2 + 1"}
TESTS = {"ground_truth": {"inputs": ["1\n"], "outputs": ["2\n"]}}
CALLS = {"ground_truth": [{"name": "search", "arguments": {"q": "a"}}]}
NO_CALL = {"ground_truth": []}
POSED = {"outcome": 1.0, "info": {"solve_rate": 0.5, "rag_check": 1.0, "well_formed": 1.0}}
FILES = {"code_context": {"a.py": "x = 1\n"}, "oracle_new_content": {"a.py": "x = 2\n"}}
CHAIN = {"reference": "Paris", "key_points": [[["Paris"]]], "style": [{"code": "def f(t):\n return True", "weight": 1}]}
BOUGHT = {"bought": 1, "matched_attributes": 1, "matched_options": 1, "price_ok": 1, "type_score": 1}
RESULTS = {"f2p_passed": 2, "f2p_total": 2, "p2p_passed": 3, "p2p_total": 3}
JUDGE = {"endpoint": "{url}/v1", "models": "m"}
CHAT = {"endpoint": "{url}/v1/chat/completions", "model": "m"}
POOLING = {"endpoint": "{url}/pooling", "model": "m"}

DISCRIMINATOR = Path(tempfile.mkdtemp()) / "discriminator.json"
Discriminator.fit(["Paris", "42", ""], ["no"]).save(DISCRIMINATOR)
CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    **{name: [({}, QA)] for name in ("exact_match", "f1", "search_r1", "search_r1_format", "research", "arpo", "ssrl")},
    "router_r1": [({"cheapness": 1.0}, QA), ({"cheapness": 1.0, "metric": "f1"}, QA)],
    "reseek": [({}, QA)],
    "prs": [({}, QA), ({"quality": 0.0}, {})],
    "rlvrr": [({}, {"ground_truth": CHAIN})],
    "math": [({}, MATHS), ({}, TEXT_MATHS)],
    "reft": [({}, MATHS), ({}, TEXT_MATHS)],
    "retool": [({}, MATHS), ({"soften_wrong": True}, MATHS)],
    "code_tests": [({}, TESTS), ({"partial": True}, TESTS)],
    "coderl": [({}, TESTS)],
    "ppocoder": [({}, {"ground_truth": "def f():\n    return 1\n"})],
    "swe_rl": [({}, {"ground_truth": FILES}), ({"tags": False}, {"ground_truth": FILES})],
    "resolved": [({}, {"outcome": 1.0, "info": RESULTS})],
    "resolved_partial": [({"part": part}, {"outcome": 1.0, "info": RESULTS}) for part in ("f2p", "p2p")],
    "retrieval": [({}, {"ground_truth": {"a.py": [[1, 3]]}})],
    "cursor_tab": [({}, {"ground_truth": "text"}), ({}, {"outcome": 1.0, "info": {"accepted": 1.0}})],
    "toolrl": [({}, CALLS), ({}, NO_CALL), ({}, {"ground_truth": "<think>no call, no response</think>"})],
    "toolrl_efficiency": [({}, CALLS), ({}, NO_CALL), ({"by": "answer"}, QA)],
    "webshop": [({}, {"ground_truth": {"attributes": ["a"], "options": ["b"]}, "outcome": 1.0, "info": BOUGHT})],
    "tau_bench": [({}, {"ground_truth": {"outputs": []}, "outcome": 1.0, "info": {"db_equal": 1.0}})],
    "env": [({}, {"outcome": 1.0})],
    "pass_at_k": [({"k": 2}, {"outcome": 1.0})],
    "continuations": [({"k": 2}, {"outcome": 1.0})],
    "imitation": [({"model": str(DISCRIMINATOR)}, {})],
    "format_r1": [({}, {}), ({"strict": False}, {}), ({"starts_in_reasoning": True}, {})],
    "format": [({}, {}), ({"strict": False, "max_call_bonus": None}, {})],
    "tool_validity": [({}, {})],
    "tool_shaping": [({"needed": ["search"]}, {})],
    "tool_outcomes": [({}, {})],
    "tool_diversity": [({"tools": ["search", "python"]}, {})],
    "efficiency": [({}, {})],
    "length_linear": [({}, {})],
    "length_sigmoid": [({}, {})],
    "length_on_failure": [({}, {"outcome": 0.0})],
    "overlong": [({}, {})],
    "repetition": [({}, {})],
    "subgoals": [({}, {"outcome": 1.0, "info": {"rooms": 3},
                       "extra": {"subgoals": [{"info": "rooms"}, {"text": "e"}]}})],
    "llm_subgoals": [({}, {"outcome": 1.0, "info": {"rooms": 3},
                           "extra": {"plan": {"subgoals": [{"name": "a", "check": {"info": "rooms"}}]}}})],
    "progress": [({"estimator": f"{__name__}:generous"}, {})],
    "confidence": [({"form": form}, {}) for form in ("probability", "log_prob")],
    "consistency": [({}, {}), ({"form": "share"}, {})],
    "challenger_r_zero": [({}, POSED), ({"form": "code", "repetition_weight": 0.0}, POSED)],
    "proposer_absolute_zero": [({}, POSED)],
    "proposer_ssp": [({}, POSED)],
    "judge": [(JUDGE, {}), (JUDGE, QA)],
    "self_judge": [(JUDGE, {})],
    "arena": [(JUDGE, {})],
    "orm": [(CHAT, {}), ({**POOLING, "form": "score"}, {})],
    "prm": [(POOLING, {})],
    "rm": [(POOLING, {}), ({**CHAT, "form": "yes_no"}, {})],
    "rm_z": [(POOLING, {}), ({**CHAT, "form": "yes_no"}, {})],
    "rm_ensemble": [({"members": [POOLING, POOLING]}, {}), ({"members": [POOLING, POOLING], "aggregate": "min"}, {})],
}  # fmt: skip

JUDGED_BY_ENV = {
    "env": "the environment judged the episode while it was alive, and knows whether silence was right",
    "pass_at_k": "it spreads the environment's outcomes over the group",
    "continuations": "it spreads the environment's outcomes over the turns",
}
"""The components that may pay for silence, with the reason."""

BLANKS = [
    "",
    " \n\t",
    "\u200b\u00a0\ufeff",
    "<think>Let me think about 42 and Paris.</think>",
    "<think>never closed: Paris",
    "closed only: Paris</think>",
    "<|im_end|>",
    "<think>yes</think>\n<|im_end|>\n<|endoftext|>",
    "<think>a</think><answer></answer>",
    "<think>a</think>\n<answer> \u200b </answer>",
    r"<think>a</think><answer>\boxed{}</answer>",
    r"\boxed{ }",
    r"\boxed{\text{ }~\,}",
    "<think>a</think>\n<response></response>",
    "<think>a</think>\n<solution>\n</solution>",
    "```python\n```",
    "~~~\n\n~~~",
]
GROUP = [[blank] for blank in BLANKS] + [[], ["<think>a</think>", ""], ["<think>e</think>"] * 3]


def generous(subject: Sample) -> list[float]:
    return [1.0] * len(subject.turns)


def told(body: dict[str, Any]) -> Any:
    """Returns what a model says that likes everything."""
    if body.get("logprobs"):
        top = [{"token": "YES", "logprob": 0.0}]
        return {"choices": [{"logprobs": {"content": [{"token": "YES", "top_logprobs": top}]}, "message": {}}]}
    if '"winner"' in body["messages"][1]["content"]:
        return completion(json.dumps({"canary": canary_of(body), "reason": "", "winner": "A"}))
    return completion(verdict(body, passed=True))


@contextmanager
def admirers() -> Iterator[str]:
    app = FastAPI()

    async def chat(request: Request) -> Any:
        return told(await request.json())

    async def pooling(request: Request) -> Any:
        steps = str((await request.json())["messages"][-1]["content"]).count("<extra_0>") or 1
        return {"data": [{"data": [1.0] * steps}]}

    app.post("/v1/chat/completions")(chat)
    app.post("/pooling")(pooling)
    with answering(app) as service:
        yield service.url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with admirers() as found:
        yield found


def filled(options: Any, url: str) -> Any:
    if isinstance(options, dict):
        return {key: filled(value, url) for key, value in options.items()}
    if isinstance(options, list):
        return [filled(value, url) for value in options]
    return options.replace("{url}", url) if isinstance(options, str) else options


async def verdicts(made: Component, samples: list[Sample]) -> list[Graded]:
    """Returns the checked verdicts: values that are finite and in the range."""
    if made.type.scope == "group":
        found = made(samples)
        return [made.checked(one) for one in (await found if inspect.isawaitable(found) else found)]
    results = [made(one) for one in samples]
    return [made.checked(await one if inspect.isawaitable(one) else one) for one in results]


def blank_samples(fields: dict[str, Any]) -> list[Sample]:
    found = []
    for texts in GROUP:
        turns = [turn(text, mean_log_prob=-0.01, num_tokens=3) for text in texts]
        for final_answer in {texts[-1] if texts else "", ""}:
            found.append(sample(turns, final_answer=final_answer, **fields))
    return found


def test_every_component_stands_in_the_table() -> None:
    assert sorted(CASES) == component_names(), "name the new component's best case"


def test_the_blank_episodes_are_silent_and_little_else_is() -> None:
    assert all(map(is_silent, blank_samples({})))
    assert not is_silent(sample([turn("", call())])), "a call is work"
    for answer in ("0", ".", "-", "<b>", "{}", r"\boxed{0}", "```\npass\n```", "<think>a</think>b", "é", "日", "<tag>"):
        assert not is_empty(answer), answer
    assert not is_empty_box("{}1") and is_empty_box(r"\text{} \quad")


@pytest.mark.parametrize("name", [name for name in CASES if name not in JUDGED_BY_ENV and name != "consistency"])
async def test_silence_earns_nothing(name: str, url: str) -> None:
    for options, fields in CASES[name]:
        made = load_component(name).make(filled(options, url))
        silent = blank_samples(fields)
        groups = [[one] for one in silent]
        if made.type.scope == "group":  # beside work that is worth something, and among themselves
            groups = [silent, [*silent[:1], *_work(fields)], silent[:2], *groups]
        for group in groups:
            for one, graded in zip(group, await verdicts(made, group), strict=True):
                if not is_silent(one):
                    continue
                assert graded.value is None or graded.value <= 0, (options, one.turns, graded)
                assert all(share <= 0 for share in graded.turns.values()), (options, one.turns, graded)


def _work(fields: dict[str, Any]) -> list[Sample]:
    return [sample(text, **fields) for text in ("Paris", "Rome", "What is 6 * 7?")]


WORDS = [
    "<think>", "</think>", "<answer>", "</answer>", "<search>", "</search>", "<judge>good</judge>", r"\boxed{42}",
    r"\boxed{", "}", "Paris", "yes", "42", "1e999", "nan", "-inf", "\ud800", "\x00", "```python\nprint(2)\n```",
    "<tool_call>", "</tool_call>", "<response>", "</response>", "a.py:1-3", "\n", " ", "é", "日本", "m: what is it?",
]  # fmt: skip


def random_sample(draw: random.Random, fields: dict[str, Any]) -> Sample:
    kinds = [None, None, "malformed_json", "unknown_tool", "tool_timeout"]
    turns = []
    for _ in range(draw.randint(0, 4)):
        calls = [
            call(draw.choice(["search", "python", "x"]), error_kind=draw.choice(kinds), q=draw.choice(["a", 1, None]))
            for _ in range(draw.choice([0, 0, 1, 2]))
        ]
        text = "".join(draw.choices(WORDS, k=draw.randint(0, 12)))
        tokens = draw.choice([0, 1, 50_000])
        turns.append(turn(text, *calls, num_tokens=tokens, mean_log_prob=draw.choice([0.0, -1.0, -1e9])))
    return sample(turns, **fields)


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", CASES)
async def test_no_value_leaves_the_range(name: str, url: str) -> None:
    draw = random.Random(name)
    count = 6 if name in ("code_tests", "coderl", "rlvrr", "math", "reft", "retool") else 40
    for options, fields in CASES[name]:
        made = load_component(name).make(filled(options, url))
        samples = [random_sample(draw, fields) for _ in range(count)]
        if made.type.scope == "group":
            for size in (1, 2, 5):
                await verdicts(made, [replace(one, id=str(index)) for index, one in enumerate(samples[:size])])
        else:
            await verdicts(made, samples)
