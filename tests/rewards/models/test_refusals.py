"""Answers of servers: a full context, a filter, a failure that may pass, and everything else."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.graders.models.refusals import passing_failure, refusal_of

VLLM = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages)."
FULL = [
    (400, {"object": "error", "message": VLLM, "code": 400}),
    (400, {"error": {"message": VLLM, "type": "BadRequestError", "code": 400}}),
    (400, {"error": {"message": "Too much.", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
    (400, {"error": {"message": "Your input exceeds the context window of this model.", "code": None}}),
    (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "9 is too much"}}),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it"}}),
    (400, {"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": f'{{"m": "{VLLM}"}}'}}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
    (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "v"}),
    (400, {"error": {"message": "The input (9000 tokens) is longer than the model's context length (8192 tokens)."}}),
    (400, {"error": {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8."}}),
    (400, {"error": {"message": "Invalid request: Your request exceeded model token limit: 8192"}}),
    (400, {"error": {"code": "invalid_parameter_error", "message": "Range of input length should be [1, 30720]"}}),
    (400, {"error": {"message": "Prompt length 9000 is greater than max_seq_len 8192"}}),
    (400, VLLM),
    (200, {"error": {"code": 400, "message": VLLM}}),
    (200, {"choices": [{"finish_reason": "error", "error": {"code": "context_length_exceeded"}, "message": {}}]}),
]  # fmt: skip
FILTERED = [
    (400, {"error": {"code": "content_filter", "message": "The response was filtered", "type": None, "status": 400}}),
    (400, {"error": {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    (400, {"error": {"message": "The response was filtered due to Azure OpenAI's content management policy."}}),
    (400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}}),
    (403, {"error": {"code": 403, "message": "no", "metadata": {"reasons": ["x"], "flagged_input": "y"}}}),
    (200, {"choices": [{"finish_reason": "content_filter", "message": {"content": None}}]}),
    (200, {"choices": [{"finish_reason": "SAFETY", "message": {"content": None}}]}),
    (200, {"choices": [{"finish_reason": "stop", "message": {"content": None, "refusal": "I cannot."}}]}),
]
PASSING = [
    (502, {}),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    (522, "<html>Connection timed out</html>"),
    (200, {"choices": [{"finish_reason": "insufficient_system_resource", "message": {"content": ""}}]}),
    (200, {"error": {"code": 502, "message": "upstream"}}),
    (200, {"choices": [{"finish_reason": "error", "message": {"content": "I th"}}]}),
    (200, {"choices": [{"finish_reason": None, "error": {"message": "x"}, "message": {"content": "I th"}}]}),
]
OTHERS = [
    (400, {"error": {"message": "max_tokens is too large: 9. This model supports at most 8 completion tokens"}}),
    (400, {"error": {"message": "Unsupported parameter: use 'max_completion_tokens' instead"}}),
    (401, {"error": {"message": "maximum context length"}}),
    (400, {"error": {"message": "too long"}}),
    (200, {"choices": [{"finish_reason": "stop", "message": {"content": VLLM, "refusal": None}}], "error": None}),
    (200, {"choices": [{"finish_reason": "MALFORMED_FUNCTION_CALL", "message": {"content": ""}}]}),
    (200, {"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [{}], "refusal": "x"}}]}),
    (200, "<html>Content policy</html>"),
    (200, {"error": {"code": 402, "message": "no credit"}}),
    (400, {"error": "content filter"}),
    (200, []),
]


@pytest.mark.parametrize(("status", "answer"), [*FULL, *FILTERED, *PASSING, *OTHERS])
def test_each_answer_is_of_one_kind(status: int, answer: Any) -> None:
    kind = refusal_of(status, answer), passing_failure(status, answer) is not None
    case = status, answer
    expected = "context_full" if case in FULL else "content_filter" if case in FILTERED else None
    assert kind == (expected, case in PASSING)
