"""Headers of tar members: USTAR, and PAX where a name needs it; the same bytes on every machine."""

BLOCK = 512
END = bytes(2 * BLOCK)  # POSIX: an archive ends with two blocks of zeros

_NAME = 100
_PREFIX = 155


def padding(size: int) -> bytes:
    """Zeros from the end of a member's data to the next block."""
    return bytes(-size % BLOCK)


def member_header(name: bytes, size: int) -> bytes:
    """Header blocks of a regular file: one, or three and more where the name needs PAX.

    Args:
        name: Path within the archive, not empty.
        size: Bytes of data, less than 8 GiB.
    """
    split = _split(name)
    if split is not None:
        return _block(*split, size, b"0")
    record = _pax_record(b"path", name)
    if not _is_utf8(name):
        # PAX values are UTF-8 unless this record, which comes first, says otherwise.
        record = _pax_record(b"hdrcharset", b"BINARY") + record
    return b"".join(
        (
            _block(b"././@PaxHeader", b"", len(record), b"x"),
            record,
            padding(len(record)),
            _block(name[:_NAME], b"", size, b"0"),
        )
    )


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Name and prefix fields of a USTAR header; None if they cannot hold this name.

    The prefix is as short as it can be, which is how Python's tarfile chooses it too.
    """
    if len(name) <= _NAME:
        return name, b""
    cut = name.find(b"/", len(name) - _NAME - 1)
    if not 0 < cut <= _PREFIX or cut + 1 == len(name):
        return None
    return name[cut + 1 :], name[:cut]


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """``length keyword=value`` and a line feed; the length counts its own digits."""
    rest = len(keyword) + len(value) + 3
    length = rest + len(str(rest))
    if len(str(length)) > len(str(rest)):
        length += 1
    return b"%d %b=%b\n" % (length, keyword, value)


def _block(name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    fields = (
        name.ljust(_NAME, b"\0"),
        b"0000644\0",  # mode
        b"0000000\0",  # user
        b"0000000\0",  # group
        b"%011o\0" % size,
        b"00000000000\0",  # time
        b"        ",  # check sum, blanks while it is summed
        kind,
        bytes(_NAME),  # name of a link's target
        b"ustar\00000",
        bytes(64),  # names of user and group
        bytes(16),  # device numbers
        prefix.ljust(_PREFIX, b"\0"),
        bytes(12),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
