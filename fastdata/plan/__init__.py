"""Which samples come when, and what is cropped of them: pure functions."""
