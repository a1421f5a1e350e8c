"""Sets an environment variable of each process with an FSDP engine: torch's attention avoids cuDNN's kernels.

verl skips an update whose gradient is NaN, and prints only a line.
"""

from __future__ import annotations

from verl_agentic.credit.cudnn_attention import avoid_cudnn_attention

avoid_cudnn_attention()
