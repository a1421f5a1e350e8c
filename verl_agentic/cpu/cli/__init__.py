"""Commands for models on this machine: `model`, `serve` and `tiny-model`."""
