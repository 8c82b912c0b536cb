"""Batches on their way to a device, and computation there."""
