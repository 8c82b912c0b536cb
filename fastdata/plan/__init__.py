"""Which samples come when, and how they are cropped: pure functions."""
