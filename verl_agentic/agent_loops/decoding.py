"""Token ids to text, exactly as they were sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def exact_decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Returns a function from token ids to text: special tokens included, nothing cleaned up.

    transformers converts every id on its own before it decodes, which takes longer than the decoding. So a tokenizer
    whose `decode` is the library's own is asked without that.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    methods = (getattr(type(tokenizer), name, None) for name in ("decode", "_decode"))
    is_own = all(getattr(m, "__module__", "").startswith("transformers.tokenization_utils") for m in methods)
    if backend is not None and is_own:
        return lambda ids: backend.decode(ids, skip_special_tokens=False)
    return lambda ids: tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
