"""The comparison with Pillow over folders that `make differential` runs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from places import ROOT

TOOL = ROOT / "tools" / "differential.py"


@pytest.fixture
def tool() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("differential", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *folders: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["differential.py", *map(str, folders)])
    code: int = tool.main()
    return code


def test_files_that_pillow_writes_are_equal(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a folder it compares files of its own, of which none differs."""
    assert _run(tool, monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 50
    assert not any("DIFFERENT" in line or "REFUSED" in line for line in lines)


def test_what_differs_or_is_refused_is_named(
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A pixel that is off by one, and a file that only Pillow takes, make the exit code 1."""
    Image.new("RGB", (9, 7)).save(tmp_path / "differs.png")
    Image.new("RGB", (9, 7)).save(tmp_path / "refused.bmp")
    Image.new("RGB", (9, 7)).save(tmp_path / "equal.webp", lossless=True)
    load = tool.decode

    def fail(data: bytes) -> np.ndarray:
        if data.startswith(b"BM"):
            raise tool.DecodeError("no more BMP")
        pixels: np.ndarray = load(data)
        pixels[3, 4, 1] += data.startswith(b"\x89PNG")
        return pixels

    monkeypatch.setattr(tool, "decode", fail)

    assert _run(tool, monkeypatch, tmp_path) == 1
    output = capsys.readouterr().out
    for line in ("differs.png: PNG RGB, loaded: DIFFERENT: 1", "refused.bmp: BMP RGB, loaded: REF"):
        assert line in output
    assert "equal.webp" not in output
