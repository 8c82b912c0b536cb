"""From encoded bytes to batches of pixels in host memory."""
