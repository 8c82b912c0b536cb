"""torchvision's classification models by name, and which of their weights decay."""

import difflib
import warnings
from typing import Any

from torch import nn

from fastdata.errors import MissingExtraError, OptionError

# Not matrices in spite of their dimensions: like a bias, they act on activations one by one.
_NOT_A_MATRIX = ("class_token", "pos_embedding", "relative_position_bias_table", "layer_scale")


def build(name: str, *, classes: int, size: int) -> nn.Module:
    """Build one of torchvision's classification models with random weights.

    The weights are drawn from torch's default random generator.

    Args:
        name: torchvision's name, for example ``"resnet18"``.
        classes: Number of outputs.
        size: Side of the square images in pixels; only vision transformers depend on it.

    Raises:
        MissingExtraError: torchvision is not installed.
        OptionError: torchvision has no classification model of this name, or cannot build it
            for this size.
    """
    models = _torchvision_models()
    names: list[str] = models.list_models(module=models)
    if name not in names:
        raise OptionError(f"unknown model {name!r}; {_advice(name, names)}")
    settings: dict[str, Any] = {"num_classes": classes}
    if name.startswith("vit_"):
        settings["image_size"] = size
    if name in ("googlenet", "inception_v3"):  # one output in training, as the others have
        settings["aux_logits"] = False
    try:
        with warnings.catch_warnings():  # those two announce that their defaults will change
            warnings.simplefilter("ignore", FutureWarning)
            model: nn.Module = models.get_model(name, weights=None, **settings)
    except (AssertionError, ValueError) as error:
        raise OptionError(f"{name} cannot be built for size {size}: {error}") from error
    return model


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the trainable parameters into one group that decays and one that does not.

    Matrices and convolution kernels decay; biases, the weights of normalisation layers, class
    tokens and position embeddings do not: pulling those towards zero regularises nothing.
    """
    exempt = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim <= 1 or name in _NOT_A_MATRIX
    }
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {
            "params": [p for p in trained if id(p) not in exempt],
            "weight_decay": weight_decay,
        },
        {"params": [p for p in trained if id(p) in exempt], "weight_decay": 0.0},
    ]


def _torchvision_models() -> Any:
    try:
        from torchvision import models
    except ImportError as error:
        raise MissingExtraError(
            "training needs torchvision; install it with: pip install 'fastdata[train]'"
        ) from error
    return models


def _advice(name: str, names: list[str]) -> str:
    """What to use in place of a name that does not exist."""
    near = difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.5)
    if near:
        return "near it: " + ", ".join(near)
    return "torchvision has " + ", ".join(names)
