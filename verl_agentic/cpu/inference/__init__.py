"""Generation with continuous batching on a CPU (or one GPU, for debugging): tokens in, sampled tokens out.

The continuous batching of transformers samples one configuration for the whole batch, gives no log-probs of the
trainer's distribution, keeps no cache between requests and cannot take new weights. So batch, cache and sampling are
ours; the models are those of transformers.
"""
