"""The examples of segmentation and detection train for a few steps."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from places import ROOT

import fastdata as fd

_EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight pictures of a bright square on noise, with masks and boxes of it."""
    pytest.importorskip("torchvision")
    root = tmp_path_factory.mktemp("squares") / "img"
    root.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        pixels = rng.integers(0, 100, (90, 110, 3), np.uint8)
        mask = np.zeros((90, 110), np.uint8)
        x, y, side = (int(n) for n in rng.integers(10, 40, 3))
        pixels[y : y + side, x : x + side] = 230
        mask[y : y + side, x : x + side] = 1
        Image.fromarray(pixels).save(root / f"{number}.jpg")
        Image.fromarray(mask).save(root / f"{number}.png")
        boxes = {"boxes": [[x, y, x + side, y + side]], "classes": [1]}
        (root / f"{number}.json").write_text(json.dumps(boxes))
    out = root.parent / "packed"
    fd.pack(root, out, fields=("png", "json"))
    return out


@pytest.mark.check
@pytest.mark.parametrize("name", ["segmentation", "detection"])
def test_example_trains(packed: Path, name: str) -> None:
    """It runs as its first lines say, and its loss is a number at the end."""
    command = [sys.executable, str(_EXAMPLES / f"{name}.py"), str(packed), "--classes", "2"]
    command += ["--steps", "3", "--size", "96", "--batch-size", "4", "--lr", "0.001"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=240)

    assert done.returncode == 0, done.stderr
    assert np.isfinite(float(done.stdout.split("loss")[-1]))
