"""What a diagnosis found out: plain frozen data, JSON through ``dataclasses.asdict``.

Speeds are in images a second of this data set, each of one stage alone.
"""

from dataclasses import dataclass
from typing import Literal

StageName = Literal["storage", "decoding", "Python", "copying", "model"]


@dataclass(frozen=True)
class Reading:
    """Samples read at random places, as the loader reads them.

    Attributes:
        threads: How many reads were under way at a time.
        images: How many were read.
        images_per_second: Their speed.
        bytes_per_second: The same in encoded bytes.
        slowest_seconds: The longest time that a batch of reads took.
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
        cold: After the kernel was told to forget the bytes; None where it still had them.
        cold_wide: The same with four times as many threads; None likewise.
        from_storage: Share of the bytes of the cold reading that came from storage, by the
            kernel's count; None where it keeps none.
        warm: The same samples again, now from memory.
        file_system: Type of the network file system that they lie on; None for a local disk.
        bytes: Size of the files.
        memory: Bytes of memory that could hold them; None where the system does not say.
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
        """Whether memory can hold the files, so that only the first epoch reads them."""
        return self.memory is not None and self.bytes <= self.memory


@dataclass(frozen=True)
class Speed:
    """Decoding, cropping and resizing from memory, with so many threads."""

    threads: int
    images_per_second: float


@dataclass(frozen=True)
class Content:
    """What the images of a sample of the data set are; shares of 1.

    Attributes:
        images: How many were looked at.
        bytes: Their mean size.
        shorter_side: Median of their shorter sides, pixels.
        jpeg: Share that is JPEG.
        runs: Share of all that is JPEG with restart markers.
        progressive: Share of all that is progressive JPEG.
    """

    images: int
    bytes: float
    shorter_side: int
    jpeg: float
    runs: float
    progressive: float


@dataclass(frozen=True)
class LoaderSpeed:
    """The whole loader, its batches thrown away.

    Attributes:
        images_per_second: With the page cache as it was.
        seconds_per_batch: CPU time of the consumer's thread within ``next()``.
    """

    images_per_second: float
    seconds_per_batch: float


@dataclass(frozen=True)
class Copying:
    """Page-locked memory to the device."""

    images_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class ModelSpeed:
    """The train step on a batch that stays on the device.

    Attributes:
        name: torchvision's name.
        batch_size: Images a step; on the CPU fewer than asked for where steps are slow.
        images_per_second: Its speed.
    """

    name: str
    batch_size: int
    images_per_second: float


@dataclass(frozen=True)
class Remedy:
    """The same images packed in another way, measured on a few of them.

    Attributes:
        command: What does it to all.
        decoding: Speed of decoding over that of the images as they are.
        bytes: Size over that of the images as they are.
        note: What it does to the pixels.
    """

    command: str
    decoding: float
    bytes: float
    note: str


@dataclass(frozen=True)
class Settings:
    """What was asked for: the loader's arguments and those of the train step."""

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
        free_cores: What threads on all cores got of them when the diagnosis began.
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
        images_per_second: The expected speed of training with it; None where it is unknown.
    """

    change: str
    reason: str
    images_per_second: float | None


@dataclass(frozen=True)
class Diagnosis:
    """What limits training, and what to change.

    Attributes:
        measured: The figures.
        stages: The speed of each stage alone, in epochs after the first.
        limit: The stage that limits.
        expected: Speed of training, by the stages' own, once memory holds what it can.
        share: ``expected`` over the model's own speed; None without a model.
        summary: The same in words.
        advice: Settings to change, the one that gains most first.
        warnings: What else is not as it should be.
        loader: A line of Python that makes the loader with the settings advised.
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
