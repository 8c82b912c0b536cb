"""What a loader is asked to do; it travels to its process as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One loader's part of the benchmark.

    Attributes:
        name: Name of the peer.
        work: Folder that holds ``images``, a folder of class folders.
        batch: Images in a batch.
        size: Side of the crops in pixels.
        threads: Cores to use: workers or threads.
        warm_up: Seconds that are not measured.
        seconds: Seconds that are measured.
    """

    name: str
    work: str
    batch: int
    size: int
    threads: int
    warm_up: float
    seconds: float

    @property
    def images(self) -> Path:
        """Folder of class folders."""
        return Path(self.work, "images")

    @property
    def form(self) -> Path:
        """Folder for the peer's own form of the images."""
        return Path(self.work, self.name)

    def to_json(self) -> str:
        """The job as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Job":
        """The job that :meth:`to_json` made the text of."""
        return Job(**json.loads(text))
