"""Statistics of an episode's calls and words."""

from __future__ import annotations

import pytest

from verl_agentic.base.types import Action, Message, ToolCall
from verl_agentic.episode.trace.call_statistics import (
    call_statistics,
    corrections,
    num_duplicates,
    num_unused,
    tool_distribution,
    tool_metrics,
    tools_called,
)
from verl_agentic.rewards.sample import Call, Turn, to_turns


def call(name: str, query: str, *, result: str | None = "x", error: str | None = None, failed: bool = False) -> Call:
    return Call(
        name=name, arguments={"q": query}, result=result, is_error=failed or error is not None, error_kind=error
    )


def test_vector_of_duplicates() -> None:
    # V-TOOLSHAPE: 2 of 5 calls, H5: .4.
    asked = [("search", "q1"), ("search", "q1"), ("search", "q1"), ("browse", "u"), ("python", "1+1")]
    calls = [call(name, query) for name, query in asked]
    assert num_duplicates(calls) == 2 and num_duplicates(calls) / len(calls) == 0.4


def test_only_the_same_call_with_the_same_answer_just_before_is_a_duplicate() -> None:
    assert num_duplicates([call("go", "right", result="a"), call("go", "right", result="b")]) == 0
    assert num_duplicates([call("go", "right"), call("look", "")] * 3) == 0
    assert num_duplicates([call("go", "right"), call("go", "left")]) == num_duplicates([]) == 0
    assert num_duplicates([call("go", "right", result=None)] * 2) == 1


def test_vector_of_self_correction() -> None:
    # H25: two errors, one of which is put right: .5.
    calls = [
        call("python", "1+", failed=True),
        call("python", "1+1"),
        call("search", "?", error="wrong_arguments"),
        call("python", "2+2"),
    ]
    assert corrections(calls) == (2, 1)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # The same call that works the second time was no mistake of the policy's.
        ([call("a", "1", failed=True), call("a", "1")], (1, 0)),
        # A tool that there is not is put right by any other.
        ([call("pyhton", "1", error="unknown_tool"), call("python", "1")], (1, 1)),
        # One success puts one right: the last.
        ([call("a", "1", failed=True), call("a", "2", failed=True), call("a", "3")], (2, 1)),
        ([call("a", "1", failed=True), call("a", "2", failed=True), call("a", "3"), call("a", "4")], (2, 2)),
        ([call("a", "1", failed=True), call("b", "2")], (1, 0)),
        # b puts its own mistake right, so that c is left for the tool that there is not.
        ([call("x", "1", error="unknown_tool"), call("b", "1", failed=True), call("b", "2"), call("c", "3")], (2, 2)),
        # Not answered before the episode ended: neither a failure nor a success.
        ([call("a", "1", failed=True), call("a", "2", result=None)], (1, 0)),
        ([], (0, 0)),
    ],
)
def test_what_counts_as_put_right(calls: list[Call], expected: tuple[int, int]) -> None:
    assert corrections(calls) == expected


def test_vectors_of_the_distribution_of_calls() -> None:
    # V-TOOLDIV.
    for counts, entropy, top_share in (
        ({"search": 8, "python": 0}, 0.0, 1.0),
        ({"search": 4, "python": 4}, 1.0, 0.5),
        ({"search": 6, "python": 2}, 0.811278, 0.75),
    ):
        found = tool_distribution(counts)
        assert found == {"top_share": top_share, "entropy": pytest.approx(entropy, abs=1e-6)}
    assert tool_distribution({"search": 8}, tools=["search", "python"]) == {"top_share": 1.0, "entropy": 0.0}
    assert tool_distribution({}) == {"top_share": 0.0, "entropy": 0.0}


def episode(*steps: tuple[str, list[tuple[str, str, Message]]]) -> tuple[Turn, ...]:
    """Returns the turns of a conversation: what the policy wrote, and calls with their answers."""
    messages, actions = [], []
    for turn, (text, calls) in enumerate(steps):
        asked = tuple(ToolCall(name, {"q": query}) for name, query, _ in calls)
        actions.append(Action(turn, text, text, tool_calls=asked))
        messages += [actions[-1].to_message(), *(answer for _, _, answer in calls)]
    return to_turns(messages, actions)


ANSWER = Message("tool", "42", name="search")


def test_numbers_of_an_episode() -> None:
    wrong = Message("tool", "no such tool", is_error=True, error_kind="unknown_tool")
    turns = episode(
        ("so", [("serach", "a", wrong)]),
        ("then", [("search", "a", ANSWER), ("search", "a", ANSWER)]),
        ("42", []),
    )
    assert call_statistics(turns) == {
        "duplicate_calls": 1.0,
        "unused_calls": 0.0,
        "failed_calls": 1.0,
        "corrected_calls": 1.0,
        "repeated_ngrams": 0.0,
    }
    assert tools_called(turns) == {"search": 2}


def test_calls_whose_results_no_later_turn_has_are_unused() -> None:
    def printed(code: str, result: str) -> tuple[str, list[tuple[str, str, Message]]]:
        return f"print({code})", [("python", f"print({code})", Message("tool", result, name="python"))]

    harmless = [printed(str(number), f"{number}\n") for number in range(12)]
    assert num_unused(episode(*harmless, ("the answer is 0", []))) == 12
    assert num_unused(episode(*harmless, printed("6 * 7", "42"), ("it is 42", []))) == 12
    assert num_unused(episode(printed("6 * 7", "42"), printed("42 + 1", "43"), ("43", []))) == 0
    assert num_unused(episode(("42 again", [("python", "6 * 7", ANSWER)]), ("done", []))) == 1
    failed = Message("tool", "Traceback 42", name="python", is_error=True)
    assert num_unused(episode(("so", [("python", "x", failed)]))) == 0


def test_a_void_episode_has_the_same_keys() -> None:
    turns = episode(("so", [("search", "a", ANSWER)]))
    void = call_statistics(())
    assert void == dict.fromkeys(call_statistics(turns), 0.0) and tools_called(()) == {}


def test_text_that_is_written_again_is_repeated_and_what_tools_say_is_not() -> None:
    words = " ".join(str(number) for number in range(60))
    once = episode((words, [("search", "a", Message("tool", words))]))
    twice = episode((words, []), (words, []))
    # 41 n-grams of 20 words, then the same again.
    assert call_statistics(once)["repeated_ngrams"] == 0.0
    assert call_statistics(twice)["repeated_ngrams"] == 0.5


def test_a_text_without_end_is_looked_at_in_part() -> None:
    # The repeated part is further back than what is looked at.
    words = " ".join(f"word{number}" for number in range(4_000))
    assert len(words) > 20_000
    for turns in ([("so so " * 500, []), (words, [])], [("so so " * 500 + words, [])]):
        assert call_statistics(episode(*turns))["repeated_ngrams"] == 0.0


def test_calls_per_tool_over_a_batch() -> None:
    found = tool_metrics([{"search": 5, "python": 1}, {"search": 1}, {}, {"python": 1}])
    assert found == {
        "calls/search": 1.5,
        "calls/python": 0.5,
        "tool_top_share": 0.75,
        "tool_entropy": pytest.approx(0.811278, abs=1e-6),
    }
    assert tool_metrics([{}]) == tool_metrics([]) == {}


def test_many_names_do_not_become_many_metrics() -> None:
    found = tool_metrics([{f"tool{number}": number + 1 for number in range(100)}])
    assert len([name for name in found if name.startswith("calls/")]) == 32 and found["calls/tool99"] == 100.0
