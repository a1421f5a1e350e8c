"""Patches verl: `_async_meta_to_realdata` of its `transferqueue_utils` leaves the records of episodes out.

verl ships every column of a batch to every worker, and the engine copies each of them for every micro-batch, one object
per row. Engines and losses read tensors, `uid` and `multi_modal_inputs`. What agent loops and rewards know of an
episode stays in TransferQueue.
"""

from __future__ import annotations

from typing import Any

from verl.utils import transferqueue_utils

from verl_agentic.verl.patching import wrap

RECORDS = frozenset(
    {
        *("prompt", "raw_prompt", "reward_model", "extra_info", "index", "tools_kwargs", "interaction_kwargs"),
        *("agent_name", "session_id", "extra_fields", "metrics", "num_turns"),
        *("mm_processor_kwargs", "mm_processor_output"),
    }
)
"""Columns of datasets and agent loops that no engine reads."""
_kept: set[str] = set()


def keep_records(*names: str) -> None:
    """Leaves these records in the batches of this process's workers."""
    _kept.update(names)


@wrap(transferqueue_utils, "_async_meta_to_realdata")
async def fetch_without_records(fetch: Any, meta: Any) -> Any:
    """Fetches the columns of a batch for a worker."""
    if not hasattr(meta, "field_names"):  # keys, without the names of their columns
        meta = await transferqueue_utils.async_kv_batch_meta2batch_meta(meta)
    left_out = RECORDS - _kept
    return await fetch(meta.select_fields([name for name in meta.field_names if name not in left_out]))
