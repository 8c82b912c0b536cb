"""CRC32C (Castagnoli), the checksum of every sample and of the catalog.

A module of its own, so that one place says whose implementation it is.
"""

from collections.abc import Callable

import google_crc32c

crc32c: Callable[[bytes], int] = google_crc32c.value
"""CRC32C of bytes, as an unsigned 32-bit integer, at about 10 GB/s; a memoryview is refused."""
