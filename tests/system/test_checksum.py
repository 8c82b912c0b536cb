"""CRC32C of bytes."""

import pytest

from fastdata.system.checksum import crc32c


def test_the_published_check_value() -> None:
    """The polynomial is Castagnoli's: RFC 3720 gives these values."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"") == 0


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_only_bytes_will_do(kind: type) -> None:
    """What could change under the checksum, or is not contiguous, is no number that is wrong."""
    with pytest.raises(TypeError):
        crc32c(kind(b"123456789"))
