"""Normalisation equals torchvision's float pipeline."""

import importlib.util
import re
import sys
from types import ModuleType

import pytest
import torch
from torchvision.transforms import v2

import fastdata.device.normalize
from fastdata.device.normalize import IMAGENET, Normalize
from fastdata.errors import DeviceError

_CPU = torch.device("cpu")
_DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


def _levels() -> torch.Tensor:
    """All 256 values in each channel, channels_last as a loader has them."""
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).expand(2, 16, 16, 3)
    return levels.contiguous().permute(0, 3, 1, 2)


def _noise(count: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    shape = (count, height, width, 3)
    noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return noise.permute(0, 3, 1, 2)


def _torchvisions(pixels: torch.Tensor) -> torch.Tensor:
    steps = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*map(list, IMAGENET))]
    return v2.Compose(steps)(pixels)  # type: ignore[no-any-return]


def _check(ours: torch.Tensor, pixels: torch.Tensor, dtype: torch.dtype) -> None:
    assert ours.dtype == dtype
    assert ours.shape == pixels.shape
    assert ours.is_contiguous(memory_format=torch.channels_last)
    rtol = torch.finfo(dtype).eps
    torch.testing.assert_close(ours.float(), _torchvisions(pixels), rtol=rtol, atol=1e-6)


@_DTYPES
def test_equals_torchvision(dtype: torch.dtype) -> None:
    """Every pixel value in every channel is torchvision's, within one rounding of the dtype."""
    pixels = _levels()

    _check(Normalize(IMAGENET, dtype=dtype, device=_CPU)(pixels), pixels, dtype)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (2, 1, 333), (70, 64, 64), (0, 8, 8)])
@_DTYPES
def test_odd_sizes(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Sizes that fill no block, several pieces, one pixel, and no image at all."""
    pixels = _noise(*shape)

    _check(Normalize(IMAGENET, dtype=dtype, device=_CPU)(pixels), pixels, dtype)


def test_an_image_larger_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces in which the CPU works do not show."""
    pixels = _noise(5, 9, 8)
    whole = Normalize(IMAGENET, dtype=torch.bfloat16, device=_CPU)(pixels)
    for piece in (1, 9 * 8 * 3, 2 * 9 * 8 * 3 + 1):
        monkeypatch.setattr(fastdata.device.normalize, "_PIECE", piece)
        assert torch.equal(Normalize(IMAGENET, dtype=torch.bfloat16, device=_CPU)(pixels), whole)


def test_any_memory_is_taken() -> None:
    """Planar pixels, every other one, and mirrored ones give what their values say."""
    pixels = _noise(3, 12, 10)
    normalize = Normalize(IMAGENET, dtype=torch.float32, device=_CPU)
    for view in (pixels.contiguous(), pixels[::2, :, 1::2, ::3], pixels[:, :, :, 4:9].flip(1)):
        before = view.clone()
        _check(normalize(view), view, torch.float32)
        assert torch.equal(view, before)


def test_no_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the images do not fit, the error says how many bytes they are."""

    def refuse(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 KiB")

    normalize = Normalize(IMAGENET, dtype=torch.float16, device=_CPU)
    monkeypatch.setattr(torch, "empty_like", refuse)

    with pytest.raises(DeviceError, match=r"cpu: no memory .* 3072 bytes .*Tried to allocate"):
        normalize(_levels())


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the Triton kernel, its kernel run by Triton's interpreter on the CPU."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # read where a kernel is defined
    spec = importlib.util.find_spec("fastdata.device.normalize_kernel")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("shape", [(2, 16, 16), (1, 1, 1), (3, 7, 5), (1, 64, 33), (0, 8, 8)])
@_DTYPES
def test_the_triton_kernel(
    interpreted: ModuleType, shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    """It writes torchvision's values, and not a number beyond them."""
    pixels = _levels() if shape == (2, 16, 16) else _noise(*shape)
    room = torch.full((pixels.numel() + 4096,), 3.0, dtype=dtype)
    out = room[: pixels.numel()].view(pixels.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
    factors = Normalize(IMAGENET, dtype=dtype, device=_CPU)._factors

    interpreted.normalize(pixels, out, *factors)

    _check(out, pixels, dtype)
    assert (room[pixels.numel() :] == 3).all()


@pytest.mark.parametrize("capability", [75, 90])
@pytest.mark.parametrize("out", ["fp32", "fp16", "bf16"])
def test_the_triton_kernel_compiles(capability: int, out: str) -> None:
    """To machine code of NVIDIA's, with the widest loads and stores that there are."""
    pytest.importorskip("triton", "3.4")  # takes a source in another way before
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from fastdata.device.normalize_kernel import _BLOCK, _kernel

    names = _kernel.arg_names
    types = {"pixels": "*u8", "out": f"*{out}", "count": "i32", "BLOCK": "constexpr"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(3)}  # as whole batches are
    source = ASTSource(
        _kernel,
        {name: types.get(name, "fp32") for name in names},
        {(names.index("BLOCK"),): _BLOCK},
        aligned,
    )
    target = GPUTarget("cuda", capability, 32)
    code = compile(source, target=target, options={"enable_fp_fusion": True}).asm

    assert code["cubin"]
    accesses = set(re.findall(r"\b(?:ld|st)\.global\S*", code["ptx"]))
    assert accesses == {"ld.global.v4.b32", "st.global.v4.b32"}


def test_without_a_compiler_torch_does_it() -> None:
    """Where Triton is there but cannot work, a warning says so and nothing fails."""
    pytest.importorskip("triton")
    normalize = Normalize(IMAGENET, dtype=torch.float32, device=_CPU)

    with pytest.warns(RuntimeWarning, match="Triton cannot compile here"):
        assert normalize._compiled() is None
