"""Warnings about the machine and the data, whatever the bottleneck."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from fastdata import native
from fastdata.doctor.results import Measured
from fastdata.system import resources

_CPUS = Path("/sys/devices/system/cpu")
_FREE = 0.85  # of all cores
_FEW = 0.02  # a share too small for a warning


def throttled(cpus: Path = _CPUS) -> int:
    """How often the processor has slowed down because of heat since it was started."""
    total = 0
    for path in cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        try:
            total += int(path.read_text())
        except (OSError, ValueError):
            continue
    return total


def warnings(measured: Measured, throttles: int) -> tuple[str, ...]:
    """Warnings in sentences, each with what to do.

    Args:
        measured: The figures.
        throttles: How often the processor slowed down during the measurements.
    """
    return (*_core(), *_machine(measured, throttles), *_data(measured), *_storage(measured))


def _core() -> Iterator[str]:
    if native.load() is None:
        yield (
            "the native core was not built, so OpenCV decodes whole images: install a C++ compiler "
            "and libjpeg-turbo (libjpeg-dev), then reinstall fastdata"
        )


def _machine(measured: Measured, throttles: int) -> Iterator[str]:
    affinity, quota, available = (
        resources.cpu_affinity(),
        resources.cpu_quota(),
        resources.cpu_count(),
    )
    if quota < affinity:
        yield (
            f"the cgroup allows {quota:g} of the {affinity} cores; more threads are stopped for "
            "the rest of each period: ask for more cores"
        )
    if measured.free_cores < _FREE * available:
        yield (
            f"only {measured.free_cores:.1f} of {available} cores were free, as other programs run "
            "or the cores are limited from outside: the figures are too low"
        )
    if torch.get_num_threads() > available:
        yield (
            f"torch uses {torch.get_num_threads()} threads on {available} cores: set "
            f"OMP_NUM_THREADS={available}"
        )
    policy = os.environ.get("OMP_WAIT_POLICY", "").lower()
    on_cpu = torch.device(measured.settings.device).type == "cpu"
    if policy == "active" or (on_cpu and policy != "passive"):
        yield (
            f"OMP_WAIT_POLICY is {policy or 'not set'}: torch's threads spin while they wait and "
            "take cores from decoding; set it to passive before torch is imported"
        )
    if throttles:
        yield f"the processor got too hot and slowed down {throttles} times during the measurements"


def _data(measured: Measured) -> Iterator[str]:
    content = measured.content
    plain = content.jpeg - content.runs
    if measured.kind != "folder" and plain > _FEW:
        yield (
            f"{plain:.0%} of the images are JPEGs without restart markers, which are decoded "
            "whole: pack again without --keep-bytes (`fastdata info` lists why some were not "
            "re-encoded)"
        )
    if content.progressive > _FEW:
        yield (
            f"{content.progressive:.0%} of the images are progressive JPEGs, which are decoded "
            "whole and slowly: `fastdata pack` makes them baseline"
        )
    if measured.kind != "folder" and 1 - content.jpeg > _FEW:
        yield (
            f"{1 - content.jpeg:.0%} of the images are not JPEGs; OpenCV decodes them whole, in "
            "Python threads"
        )


def _storage(measured: Measured) -> Iterator[str]:
    storage = measured.storage
    if storage.file_system is not None:
        yield (
            f"the data set is on a network file system ({storage.file_system}), which others use "
            "too: a copy on a local disk has a steadier speed"
        )
    if storage.cold is None:
        share = storage.from_storage
        why = (
            "this system does not count bytes from storage"
            if share is None
            else f"only {share:.0%} of the bytes came from storage, the rest was cached"
        )
        yield f"reading from a cold cache could not be measured: {why}"
