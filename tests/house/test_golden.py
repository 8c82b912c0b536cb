"""The same samples, crops and pixels with every version of Python, numpy and libjpeg-turbo."""

import base64
import hashlib
from pathlib import Path

import numpy as np
import pytest

import fastdata as fd

# 128 x 96 pixels, 4:2:0; encoded once, since encoders differ between versions
_JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABcQERQRDhcUEhQaGBcbIjklIh8fIkYyNSk5UkhXVVFIUE5bZoNvW2F8Yk5Q"
    "cptzfIeLkpSSWG2grJ+OqoOPko3/2wBDARgaGiIeIkMlJUONXlBejY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2N"
    "jY2NjY2NjY2NjY2NjY2NjY2NjY3/wAARCABgAIADASIAAhEBAxEB/8QAGgAAAgMBAQAAAAAAAAAAAAAAAQIDBAUABv/E"
    "AB8QAAIDAQACAwEAAAAAAAAAAAABAgNhEwQSERRRIf/EABoBAAMBAQEBAAAAAAAAAAAAAAMEBQIBBgD/xAAcEQADAQEB"
    "AQEBAAAAAAAAAAAAAQMCERMSBCH/2gAMAwEAAhEDEQA/AJFNDqxGcr9D9jSgpcRGUmaPRCuxGe/I0H2NEboPiLNDohlN"
    "GavI0eN+k/ybYwos04zRLGaMyN+kiv0oR/O0a8maSsQeiM77GgfkaFpjiCZizQdiB0Rn/Y077GkiuW2M5izRU0SRmjMj"
    "fpLG8+lBthVJmnGaHViM1X6P9jSnmPEaUmeX92H3Y/JgdTK1dpIkZaI3Ng92ScmcqmSK7TYzloVSZJGTDGlkkaWdllNh"
    "PpHRkx1NjKljcmUs8yja0hPdiubJHUxeTEr0QfDQnuwqTGVTHjSyd1aYwmgRkyWMmGNLJFSyhHKRr6QFNne7H5M7kw29"
    "pIJlog4YB04W38C/wSvZni87ZV4YMqMLKSHikILT0w6oyvHx8JY+PhPFIlSRRj1GvRlZUYdwwtfw5/ASlWkFztlR04Dh"
    "ha/hy+CRWrbGc7ZWVGEkfHwsRSJYpHZdbCejK8fHwdUYWUkN/ClnTyjSoyrwwDpwtP4B/BK9mMZ2zzzv07vpmdn+nK5h"
    "qY6yJmBqK7SWNxkxtZLG1hY/n6E8TVjcOr9MtXMbs/0oqPyjSiaffRXfpmu9/oO7/SffIxiBpd9GV2mWrmPG1iCj9MOo"
    "mrG4ljcZUbWSK5lGP5+G/E1Ffp3fTN7P9A73+hKY4gmYGk79B30zO7/TuzJFcdYzmBgfDGUWW1RhJHx8H86TZAVUVYxZ"
    "JGLLUfHwkXj4UpNJGvVFRRZ3wy7wwDow7WySC5oik0wfDLnDAqjCRSybGc0RUUWSRiy1Hx8JY+PgSPGE9UVYxY6iy2vH"
    "wPDCitrKNKqKfwwNMuujBeGCF7oYxRFP4YVFltUYOvHwQW/ph1VFdVIkjUgRkSxkMRwzxHWGNSGVaOUhvcof3KNpsXmg"
    "OtDOYvuT70YfHQc0MqkcpDxkI562MJsaNSJI1IEZEikUpZaRrrOVaO5ob3A5mq7aQTPRXWgc0H3CpEiu22M56cqkSRqQ"
    "IyJIyNyy2F6z/9k="
)


@pytest.mark.usefixtures("native_core")
@pytest.mark.parametrize(
    ("crop", "expected"),
    [
        (fd.RandomResizedCrop(48, flip=0.5), "1a58699a0edfb7260a76977c780b2df2"),
        (fd.CenterCrop(40, resize=52, flip=0.5), "d5e1b9067ab8d9750d303ca9a9610b96"),
    ],
    ids=["training", "evaluation"],
)
def test_golden_batches(tmp_path: Path, crop: fd.RandomResizedCrop, expected: str) -> None:
    """Ids and pixels of two epochs of ten samples, two views each, have a known digest."""
    for number in range(10):
        (tmp_path / f"{number}.jpg").write_bytes(base64.b64decode(_JPEG))
    digest = hashlib.sha256()
    with fd.Loader(tmp_path, 3, crop=crop, views=2, seed=7, drop_last=False) as loader:
        for _ in range(2):
            for batch in loader:
                digest.update(batch.ids.astype("<i8").tobytes())
                pixels = batch.images.permute(0, 2, 3, 1).contiguous().numpy()
                digest.update(np.ascontiguousarray(pixels).data)

    assert digest.hexdigest()[:32] == expected
