"""Policy losses of single papers, one per file; the name of the file is its name in `actor.policy_loss.loss_mode`.

Nobody imports them.
"""
