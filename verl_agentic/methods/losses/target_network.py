"""A target network: a copy of a network's weights that follows them slowly and can replace them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from verl_agentic.base.errors import DataError
from verl_agentic.base.settings import Settings, setting


class TargetSettings(Settings):
    """A moving average of a network's weights: the sections `agentic.critic.target` and `agentic.self_teacher`."""

    tau: float = setting(above=0, max=1)
    """Share of the way to the network that its copy goes after every update. ArCHer takes 0.1, SDPO 0.05."""


def polyak(target: Tensor, online: Tensor, *, tau: float) -> None:
    """Moves `target`, in place, to `tau * online + (1 - tau) * target`."""
    target.lerp_(online, tau)


class TargetNetwork:
    """An exponential moving average of weights, on their device, in float32 or wider.

    In bfloat16 the average would stop moving, because `tau` times a small difference is below the precision.
    """

    @torch.no_grad()
    def __init__(self, weights: Mapping[str, Tensor], *, tau: float) -> None:
        """Copies the weights."""
        self.tau = tau
        self._copy = {
            name: weight.to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            for name, weight in weights.items()
        }

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Follows the weights by one step."""
        for name, copy in self._copy.items():
            polyak(copy, weights[name].to(copy), tau=self.tau)

    @torch.no_grad()
    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Becomes a copy of the weights again."""
        for name, copy in self._copy.items():
            copy.copy_(weights[name])

    @contextlib.contextmanager
    def in_place_of(self, weights: Callable[[], Mapping[str, Tensor]]) -> Iterator[None]:
        """Runs a block with the copy's weights in the network, then restores the network's own weights exactly.

        Args:
            weights: returns the network's own tensors; called at entry and at exit.
        """
        network_weights = weights()
        # Saved on the copy's device, because an accelerator may lack memory for a third set.
        online = {name: weight.to(self._copy[name].device, copy=True) for name, weight in network_weights.items()}
        try:
            _copy_weights(self._copy, network_weights)
            yield
        finally:
            _copy_weights(online, weights())

    def state_dict(self) -> dict[str, Tensor]:
        return self._copy

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads a saved copy. Raises DataError if the state belongs to another network. Nothing is changed."""
        if _list_shapes(state) != _list_shapes(self._copy):
            raise DataError(
                f"the target network has {len(self._copy)} weights, got {len(state)} of other names or shapes; "
                "resume with the model of the checkpoint"
            )
        _copy_weights(state, self._copy)


def _list_shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}


@torch.no_grad()
def _copy_weights(source: Mapping[str, Tensor], destination: Mapping[str, Tensor]) -> None:
    for name, weight in destination.items():
        weight.copy_(source[name])
