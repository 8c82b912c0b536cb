"""Figures of a diagnosis: plain frozen data, JSON through ``dataclasses.asdict``.

Speeds are images a second of one stage alone.
"""

from dataclasses import dataclass
from typing import Literal

StageName = Literal["storage", "decoding", "Python", "copying", "model"]


@dataclass(frozen=True)
class Reading:
    """Reading random samples, as the loader does.

    Attributes:
        threads: Concurrent reads.
        images: Number of images read.
        images_per_second: Speed.
        bytes_per_second: The same in encoded bytes.
        slowest_seconds: Longest time of a batch of reads.
    """

    threads: int
    images: int
    images_per_second: float
    bytes_per_second: float
    slowest_seconds: float


@dataclass(frozen=True)
class Storage:
    """Reading the data set's files.

    Attributes:
        cold: After the page cache was evicted; None if the kernel kept the bytes.
        cold_wide: The same with four times as many threads.
        from_storage: Share of the bytes of the cold reading that came from storage, by the
            kernel's count; None where it does not count.
        warm: The same samples again, now from memory.
        file_system: Type of the network file system they are on; None for a local disk.
        bytes: Size of the files.
        memory: Bytes of memory available to cache them; None where the system does not say.
    """

    cold: Reading | None
    cold_wide: Reading | None
    from_storage: float | None
    warm: Reading
    file_system: str | None
    bytes: int
    memory: int | None

    @property
    def fits(self) -> bool:
        """Whether the files fit into memory, so that only the first epoch reads them."""
        return self.memory is not None and self.bytes <= self.memory


@dataclass(frozen=True)
class Speed:
    """Decoding, cropping and resizing from memory."""

    threads: int
    images_per_second: float


@dataclass(frozen=True)
class Content:
    """Kinds of images, from a random sample of the data set; shares from 0 to 1.

    Attributes:
        images: Number of images in the sample.
        bytes: Mean encoded size.
        shorter_side: Median shorter side in pixels.
        jpeg: Share of JPEGs.
        runs: Share of JPEGs with restart markers.
        progressive: Share of progressive JPEGs.
    """

    images: int
    bytes: float
    shorter_side: int
    jpeg: float
    runs: float
    progressive: float


@dataclass(frozen=True)
class LoaderSpeed:
    """The whole loader, its batches discarded.

    Attributes:
        images_per_second: Speed, with the page cache as it was.
        seconds_per_batch: CPU time of the consumer's thread inside ``next()``.
    """

    images_per_second: float
    seconds_per_batch: float


@dataclass(frozen=True)
class Copying:
    """Copying from page-locked memory to the device."""

    images_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class ModelSpeed:
    """The train step on a batch that stays on the device.

    Attributes:
        name: torchvision's name.
        batch_size: Images a step; below the setting on a CPU with slow steps.
        images_per_second: Speed.
    """

    name: str
    batch_size: int
    images_per_second: float


@dataclass(frozen=True)
class Remedy:
    """The same images packed in another way, measured on a few of them.

    Attributes:
        command: The command that packs the whole data set so.
        decoding: Speed of decoding, relative to the images as they are.
        bytes: Size, relative to the images as they are.
        note: What it does to the pixels.
    """

    command: str
    decoding: float
    bytes: float
    note: str


@dataclass(frozen=True)
class Settings:
    """Arguments of the loader and of the training step."""

    path: str
    batch_size: int
    size: int
    device: str
    dtype: str
    threads: int
    prefetch: int
    amp: str
    compile: bool
    channels_last: bool


@dataclass(frozen=True)
class Measured:
    """Every figure of a diagnosis; None where a stage does not exist or was left out.

    Attributes:
        free_cores: Cores that were free when the diagnosis began: what threads on all of them got.
    """

    settings: Settings
    kind: str
    samples: int
    content: Content
    storage: Storage
    decoding: tuple[Speed, ...]
    loader: LoaderSpeed
    copying: Copying | None
    model: ModelSpeed | None
    remedies: tuple[Remedy, ...]
    free_cores: float
    machine: dict[str, str | int]


@dataclass(frozen=True)
class Advice:
    """A setting to change.

    Attributes:
        change: What to do.
        reason: Why.
        images_per_second: Expected speed of training with it; None if unknown.
    """

    change: str
    reason: str
    images_per_second: float | None


@dataclass(frozen=True)
class Diagnosis:
    """The bottleneck of training, and what to change.

    Attributes:
        measured: The figures.
        stages: Speed of each stage alone, in epochs after the first.
        limit: The stage that is the bottleneck.
        expected: Speed of training that follows from the stages, in epochs after the first.
        share: ``expected`` over the model's own speed; None without a model.
        summary: The diagnosis in words.
        advice: Settings to change, by their gain.
        warnings: Other problems of the machine or the data.
        loader: A line of Python that creates the loader with the settings advised.
    """

    measured: Measured
    stages: dict[StageName, float]
    limit: StageName
    expected: float
    share: float | None
    summary: str
    advice: tuple[Advice, ...]
    warnings: tuple[str, ...]
    loader: str
