"""The optional pipeline of NVIDIA DALI."""
