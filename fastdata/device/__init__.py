"""Batches on their way to a device, and what is computed there."""
