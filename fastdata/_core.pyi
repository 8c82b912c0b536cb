"""
Native core of fastdata; fastdata.probe.core() tells whether it is there.
"""



def libjpeg_turbo_version() -> str:
    """Return the version of the linked libjpeg-turbo, for example '3.1.0'."""

def probe_jpeg(data: bytes | memoryview, max_pixels: int, max_scans: int, max_segments: int) -> tuple[int, int, int, str, bool, bool, int, int]:
    """
    Return the fields of fastdata.jpeg_header.JpegHeader, in its order; raise DecodeError.
    """
