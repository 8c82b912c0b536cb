"""torchvision's models by name, and their weight decay."""

import sys

import pytest
import torch
from torch import nn

from fastdata.errors import MissingExtraError, OptionError
from fastdata.train.models import build, parameter_groups


def test_last_layer_has_one_output_for_each_class() -> None:
    """A model maps N images to (N, classes) scores."""
    model = build("resnet18", classes=7, size=32).eval()

    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_vision_transformer_fits_the_size() -> None:
    """A ViT gets one position for each patch of images of this size, and one for its token."""
    with torch.device("meta"):
        model = build("vit_b_32", classes=3, size=96)

    assert model.get_parameter("encoder.pos_embedding").shape == (1, 3 * 3 + 1, 768)


def test_size_that_a_vision_transformer_cannot_take() -> None:
    """A size that is no multiple of the patch is an error that names the size."""
    with pytest.raises(OptionError, match="vit_b_32 cannot be built for size 100"):
        build("vit_b_32", classes=3, size=100)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_no_second_output_in_training(name: str) -> None:
    """Models with auxiliary classifiers are built without, so that they return one tensor."""
    with torch.device("meta"):
        model = build(name, classes=3, size=299)

    assert not any("aux" in part.lower() for part, _ in model.named_parameters())


def test_unknown_model_lists_near_names() -> None:
    """A typing error in a model's name is answered with the names near it."""
    with pytest.raises(OptionError, match=r"unknown model 'resnet81'; near it: .*resnet18"):
        build("resnet81", classes=2, size=32)


def test_hopeless_name_lists_all_models() -> None:
    """A name that is like none is answered with all that there are."""
    with pytest.raises(OptionError, match=r"torchvision has alexnet, .*wide_resnet50_2"):
        build("?", classes=2, size=32)


def test_torchvision_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchvision the error has the line that installs it."""
    monkeypatch.setitem(sys.modules, "torchvision", None)

    with pytest.raises(MissingExtraError, match=r"pip install 'fastdata\[train\]'"):
        build("resnet18", classes=2, size=32)


def test_only_matrices_and_kernels_decay() -> None:
    """Every parameter is in one group, and only those with two dimensions or more decay."""
    model = build("resnet18", classes=5, size=32)
    decaying, others = parameter_groups(model, 1e-4)
    ids = [id(p) for group in (decaying, others) for p in group["params"]]

    assert (decaying["weight_decay"], others["weight_decay"]) == (1e-4, 0.0)
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert {id(p) for p in others["params"]} == {
        id(p)
        for module in model.modules()
        for name, p in module.named_parameters(recurse=False)
        if isinstance(module, nn.BatchNorm2d) or name == "bias"
    }


def test_tokens_and_positions_do_not_decay() -> None:
    """What a transformer adds to its activations does not decay, whatever its shape."""
    with torch.device("meta"):
        model = build("vit_b_32", classes=3, size=32)
    names = {id(p): name for name, p in model.named_parameters()}
    _, others = parameter_groups(model, 1e-4)

    spared = {names[id(p)] for p in others["params"] if p.ndim > 1}

    assert spared == {"class_token", "encoder.pos_embedding"}


def test_frozen_parameters_are_not_trained() -> None:
    """A parameter without gradient is in neither group."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(requires_grad=False)

    decaying, others = parameter_groups(model, 1e-4)

    assert [len(group["params"]) for group in (decaying, others)] == [1, 1]
