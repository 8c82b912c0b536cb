"""The comparison of accuracies runs. No figure is looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

_SCRIPT = ROOT / "bench" / "accuracy.py"


@pytest.mark.check
def test_both_sides_train_with_each_seed(tmp_path: Path) -> None:
    """Each side has an accuracy for each seed."""
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), str(tmp_path), "--quick"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracies = json.loads(done.stdout.splitlines()[-1])["accuracies"]

    assert accuracies.keys() == {"fastdata", "torchvision"}
    for found in accuracies.values():
        assert len(found) == 2
        assert all(0 <= share <= 1 for share in found)
