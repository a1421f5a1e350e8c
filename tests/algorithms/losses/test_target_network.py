"""A target network follows slowly, and stands in for the network for as long as it is asked to."""

from __future__ import annotations

import pytest
import torch

from verl_agentic.base.errors import DataError
from verl_agentic.methods.losses.target_network import TargetNetwork, polyak


def shards(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in module.named_parameters()}


def clones(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in weights.items()}


def test_polyak_vector() -> None:
    target = torch.tensor(0.7)
    polyak(target, torch.tensor(0.8), tau=0.1)
    torch.testing.assert_close(target, torch.tensor(0.71))
    polyak(target, torch.tensor(0.8), tau=1.0)
    assert target == torch.tensor(0.8)


def test_it_starts_as_the_network_and_follows_every_update() -> None:
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    target = TargetNetwork(shards(module), tau=0.5)
    for expected in (0.5, 0.75, 0.875):
        torch.nn.init.ones_(module.weight)
        target.update(shards(module))
        assert target.state_dict()["weight"].tolist() == [[expected, expected]]
    target.start_from({"weight": torch.full((1, 2), 3.0)})
    assert target.state_dict()["weight"].tolist() == [[3.0, 3.0]] and module.weight.tolist() == [[1.0, 1.0]]


def test_it_arrives_where_bfloat16_would_stop() -> None:
    weights = {"weight": torch.ones(1, dtype=torch.bfloat16)}
    target = TargetNetwork(weights, tau=0.1)
    weights["weight"].add_(2**-6)
    for _ in range(100):
        target.update(weights)
    # Two steps of bfloat16 above 1.
    assert target.state_dict()["weight"].bfloat16() == weights["weight"] == 1 + 2**-6


@pytest.mark.parametrize("fails", [False, True])
def test_the_network_has_its_own_weights_again_even_after_a_failure(fails: bool) -> None:
    module = torch.nn.Linear(3, 2).bfloat16()
    target = TargetNetwork(shards(module), tau=0.1)
    torch.nn.init.normal_(module.weight)
    online, copy = (clones(weights) for weights in (shards(module), target.state_dict()))
    memory = module.weight.data_ptr()

    def computes() -> None:
        with target.in_place_of(lambda: shards(module)):
            assert torch.equal(module.weight, copy["weight"].bfloat16())
            assert not torch.equal(module.weight, online["weight"])
            if fails:
                raise RuntimeError("no")

    if fails:
        with pytest.raises(RuntimeError, match="no"):
            computes()
    else:
        computes()
    assert all(torch.equal(weight, online[name]) for name, weight in shards(module).items())
    assert all(torch.equal(weight, copy[name]) for name, weight in target.state_dict().items())
    assert module.weight.data_ptr() == memory


def test_what_was_saved_is_restored_and_no_other_network() -> None:
    target = TargetNetwork({"weight": torch.zeros(2)}, tau=0.1)
    target.load_state_dict({"weight": torch.ones(2)})
    assert target.state_dict()["weight"].tolist() == [1.0, 1.0]
    for other in ({"weight": torch.zeros(3)}, {"bias": torch.zeros(2)}, {}):
        with pytest.raises(DataError, match="other names or shapes"):
            target.load_state_dict(other)
    assert target.state_dict()["weight"].tolist() == [1.0, 1.0]
