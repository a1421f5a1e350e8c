"""The tiny model: the same bytes every time, loadable by the Auto classes, with a template that only ever appends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.cpu.tiny_model import CHAT_TEMPLATE, PRESETS, make_tiny_model
from verl_agentic.tools.python import SCHEMA

TOOLS = [dict(SCHEMA)]
CALL = ToolCall("python", {"code": "print('é', 6*7)"}, "call_0")
CONVERSATION = [
    Message("system", "Be brief."),
    Message("user", "What is 6*7?"),
    Message("assistant", "", tool_calls=(CALL,)),
    Message("tool", "é 42", name="python", call_id="call_0"),
    Message("assistant", "Once more.", tool_calls=(CALL, CALL)),
    Message("tool", "é 42", name="python", call_id="call_0"),
    Message("tool", "[no output]", name="python", call_id="call_0"),
    Message("assistant", r"\boxed{42}"),
    Message("user", "Thanks!"),
    Message("assistant", "Bye."),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def render(tokenizer: Any, messages: list[Message], *, tools: list[Any] | None = None, prompt: bool = False) -> str:
    return tokenizer.apply_chat_template(
        [m.to_dict() for m in messages], tools=tools, tokenize=False, add_generation_prompt=prompt
    )


def test_the_same_seed_gives_the_same_bytes_and_another_seed_only_other_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_tiny_model(tmp_path / name, seed=seed)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert sorted(a) == sorted(c)
    assert [name for name in a if a[name] != c[name]] == ["model.safetensors"]


def test_making_a_model_leaves_the_callers_random_state_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    make_tiny_model(tmp_path, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_auto_classes_load_the_folder_and_the_model_answers(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert model.config.model_type == "qwen3"
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)["input_ids"]
    out = model.generate(torch.tensor([ids]), max_new_tokens=4, do_sample=False)
    assert out.shape[1] > len(ids)
    assert set(model.generation_config.eos_token_id) == {tokenizer.eos_token_id, tokenizer.pad_token_id}


def test_any_text_survives_the_tokenizer_and_digits_stand_alone(tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny_chat
    for text in ("What is 123*456?", "Ünïcödé 你好 🙂\t\r\n", "<tool_call>\n{}\n</tool_call>", "  two  spaces "):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("90817")) == 5
    tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<|im_start|>", "<|im_end|>"]
    assert [len(tokenizer.encode(tag)) for tag in tags] == [1] * 6
    call = "<tool_call>\n{}\n</tool_call>"
    ids = tokenizer.encode(f"{call}<|im_end|>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == call, "parsers must see the tags"


def test_the_template_renders_tools_hermes_calls_and_their_responses(tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny_chat
    assert render(tokenizer, CONVERSATION[:7], tools=TOOLS, prompt=True) == (
        "<|im_start|>system\nBe brief.\npython(code): Runs Python code and returns what it prints.<|im_end|>\n"
        "<|im_start|>user\nWhat is 6*7?<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n"
        '{"name": "python", "arguments": {"code": "print(\'é\', 6*7)"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\né 42\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nOnce more.\n"
        '<tool_call>\n{"name": "python", "arguments": {"code": "print(\'é\', 6*7)"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "python", "arguments": {"code": "print(\'é\', 6*7)"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\né 42\n</tool_response>\n<tool_response>\n[no output]\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_tools_and_system_message_there_is_no_system_turn(tiny_chat: tuple[Any, Any]) -> None:
    tokenizer, _ = tiny_chat
    assert render(tokenizer, [Message("user", "Hi")]) == "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_longer_conversation_starts_with_the_rendering_of_the_shorter_one(
    tiny_chat: tuple[Any, Any], tools: list[Any] | None
) -> None:
    tokenizer, _ = tiny_chat
    whole = render(tokenizer, CONVERSATION, tools=tools)
    for k, message in enumerate(CONVERSATION):
        if message.role == "assistant":
            assert whole.startswith(render(tokenizer, CONVERSATION[:k], tools=tools, prompt=True))
            assert whole.startswith(render(tokenizer, CONVERSATION[: k + 1], tools=tools))


@pytest.mark.slow
def test_presets_have_the_number_of_parameters_of_their_name(tmp_path: Path) -> None:
    nominal = {preset: float(preset.removesuffix("m")) * 1e6 for preset in PRESETS}
    for_a_cpu = {preset: count for preset, count in nominal.items() if count <= 10e6}
    counts = {preset: make_tiny_model(tmp_path / preset, preset=preset) for preset in for_a_cpu}
    assert counts == pytest.approx(for_a_cpu, rel=0.1) and len(counts) == 4


def test_an_unknown_preset_and_a_file_in_the_way_are_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'7b'"):
        make_tiny_model(tmp_path, preset="7b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        make_tiny_model(tmp_path / "file")
