"""CRC32C of any buffer."""

import pytest

from fastdata.system.checksum import crc32c


def test_the_published_check_value() -> None:
    """The polynomial is Castagnoli's: RFC 3720 gives these values."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"") == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_will_do(kind: type) -> None:
    """Parts of a mapped file need no copy."""
    assert crc32c(memoryview(kind(b"x123456789x"))[1:-1]) == 0xE3069283
