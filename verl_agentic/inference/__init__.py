"""Generation with continuous batching on a CPU (or one GPU, for debugging): tokens in, sampled tokens out.

transformers brings a continuous batching of its own. It samples one configuration for the whole batch, gives no
log-probs of the trainer's distribution, keeps no cache of a conversation between requests and cannot take new
weights; so batch, cache and sampling are ours, and the models are theirs.
"""
