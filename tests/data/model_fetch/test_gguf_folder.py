"""GGUF files become Hugging Face folders with the weights and the special tokens of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import TEMPLATE, tiny_llama, write_tiny_gguf

pytest.importorskip("gguf", reason="the extra gguf is not installed")

from verl_agentic.base.errors import DataError
from verl_agentic.cpu.model_fetch.gguf_folder import Dtype, convert_gguf


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto"), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_the_folder_gives_the_logits_and_the_weights_of_the_file(
    tmp_path: Path, dtype: Dtype, tolerance: float
) -> None:
    original = tiny_llama()
    write_tiny_gguf(tmp_path / "m.gguf", original)
    made = convert_gguf(tmp_path / "m.gguf", tmp_path / "out", dtype=dtype)
    model, _ = _load(tmp_path / "out")
    assert model.dtype == getattr(torch, dtype) and made.parameters == original.num_parameters()
    for name, weight in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.to(model.dtype)), name
    ids = torch.arange(3, 40)[None]
    difference = original(ids).logits.softmax(-1) - model(ids).logits.float().softmax(-1)
    assert difference.abs().max() < tolerance


@pytest.mark.sample(1)
@pytest.mark.parametrize("eos", [2, 0])
def test_special_tokens_are_those_of_the_file_everywhere(tmp_path: Path, eos: int) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tiny_llama(), eos=eos)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")
    model, tokenizer = _load(tmp_path / "out")
    for holder in (tokenizer, model.config, model.generation_config):
        assert (holder.bos_token_id, holder.eos_token_id, holder.pad_token_id) == (1, eos, 2)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert (tokenizer.chat_template, text) == (TEMPLATE, "<|im_start|>user\nhi<|im_end|>\n")
    ids = tokenizer(text)["input_ids"]
    assert (ids[0], ids[-2]) == (1, 2) and tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user\nhi\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize("text", ["a  12", "x   7\n  8", "  "])
def test_numbers_are_digits_and_spaces_before_them_keep_together(tmp_path: Path, text: str) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tiny_llama())
    assert convert_gguf(tmp_path / "m.gguf", tmp_path / "out", dtype="float32").notes == ()
    _, tokenizer = _load(tmp_path / "out")
    assert tokenizer.tokenize(text).count("ĠĠ") == len(text.split("  ")) - 1
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_byte_without_a_token_becomes_no_special_token(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tiny_llama())
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", dtype="float32")
    _, tokenizer = _load(tmp_path / "out")
    ids = tokenizer.encode("a\U00040000b")
    assert tokenizer.convert_ids_to_tokens([ids[0], ids[-1]]) == ["a", "b"]
    assert len(ids) == 5 and not {*ids} & {*tokenizer.all_special_ids}


def test_rules_of_splitting_that_transformers_does_not_follow_are_noted(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tiny_llama(), pre="llama-bpe")
    (note,) = convert_gguf(tmp_path / "m.gguf", tmp_path / "out", dtype="float32").notes
    assert "llama-bpe" in note


def test_what_is_no_model_is_refused_and_leaves_an_earlier_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("{}")
    (tmp_path / "text.gguf").write_text("no model")
    write_tiny_gguf(tmp_path / "endless.gguf", tiny_llama(), eos=None)
    for name, reason in (("text", "as GGUF"), ("missing", "as GGUF"), ("endless", "no end token")):
        with pytest.raises(DataError, match=reason):
            convert_gguf(tmp_path / f"{name}.gguf", tmp_path / "out", dtype="float32")
    assert (tmp_path / "out" / "config.json").read_text() == "{}"
