"""What an encoded image is, from its header, and its pixels by libraries of Python."""
