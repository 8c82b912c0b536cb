"""What an encoded image is, from its header, and its pixels without the native core."""
