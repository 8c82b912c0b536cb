"""Shards that DALI reads itself, with its own order and its own random crops."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fastdata.device.streams import brief
from fastdata.device.transfer import Arrived
from fastdata.errors import DecodeError
from fastdata.images.probe import EXTENSIONS
from fastdata.loaders.dali.graph import Graph
from fastdata.loaders.dali.imports import DALI
from fastdata.loaders.dali.output import arrived, take_from, take_out
from fastdata.loaders.dali.shards import UNREADABLE, Places, check_shards
from fastdata.loaders.pipeline import Planned
from fastdata.loaders.readers.tar import TarSource
from fastdata.plan import rng
from fastdata.plan.batch_plan import BatchPlan
from fastdata.plan.crop import CenterCrop, RandomResizedCrop
from fastdata.system.threads import Owner

_EXTENSIONS = ";".join(sorted({*EXTENSIONS.values(), "jpeg", "tiff"} - set(UNREADABLE)))


@dataclass(frozen=True)
class ReaderGraph:
    """Operators of DALI's own reading.

    Attributes:
        graph: What follows the decoder.
        source: The shards.
        crop: Whose numbers DALI's random or central crop takes.
        flip: Probability of a horizontal flip.
        shuffle: Mix samples within DALI's buffer.
        seed: Keys what is random.
        plan: Batches of this rank in an epoch.
    """

    graph: Graph
    source: TarSource
    crop: RandomResizedCrop | CenterCrop
    flip: float
    shuffle: bool
    seed: int
    plan: BatchPlan

    def build(self, dali: DALI, epoch: int) -> Any:
        """A pipeline that begins at ``epoch`` and gives images (N, h, w, 3), and what it read."""
        shards = [self.source.path / shard.name for shard in self.source.manifest.shards]
        seed = int(rng.key("dali", self.seed, epoch)) % 2**31
        with self.graph.empty(dali, seed) as pipeline:
            encoded = dali.fn.readers.webdataset(
                paths=[str(path) for path in shards],
                index_paths=[str(path.with_suffix(".idx")) for path in shards],
                ext=[_EXTENSIONS],
                case_sensitive_extensions=False,
                missing_component_behavior="error",
                random_shuffle=self.shuffle,
                seed=seed,
                shard_id=self.plan.rank,
                num_shards=self.plan.world_size,
                stick_to_shard=True,
                pad_last_batch=True,
                dont_use_mmap=True,  # a file cut short under a mapping would end the process
            )
            mirror = dali.fn.random.coin_flip(probability=self.flip, seed=seed + 1)
            images = self._cropped(dali, encoded, seed + 2)
            pipeline.set_outputs(self.graph.finish(dali, images, (0.5, 0.5), mirror), encoded)
        pipeline.build()
        return pipeline

    def _cropped(self, dali: DALI, encoded: Any, seed: int) -> Any:
        """Decoded and scaled images, of the output's size or larger."""
        scaling = {"interp_type": dali.types.INTERP_LINEAR, "antialias": True}
        decoding = self.graph.decoding(dali)
        if isinstance(self.crop, RandomResizedCrop):
            images = dali.fn.decoders.image_random_crop(
                encoded,
                random_area=self.crop.scale,
                random_aspect_ratio=self.crop.ratio,
                num_attempts=10,
                seed=seed,
                **decoding,
            )
            return dali.fn.resize(self.graph.on_device(images), size=self.crop.shape, **scaling)
        images = self.graph.on_device(dali.fn.decoders.image(encoded, **decoding))
        if self.crop.resize is None:
            return images
        return dali.fn.resize(images, resize_shorter=self.crop.resize, **scaling)


class ReaderPipeline(Owner):
    """Takes the batches of a rank out of DALI's reader.

    To :class:`fastdata.loaders.passes.Passes` it is what ``Pipeline`` is; of a planned batch it
    takes the number of samples, and puts in those that DALI chose.
    """

    replaced = 0
    quarantined = ()
    stopped = False  # DALI waits where nobody can end it

    def __init__(
        self,
        dali: DALI,
        graph: ReaderGraph,
        device: torch.device,
        dtype: torch.dtype | None,
        prefetch: int,
    ) -> None:
        """Check that DALI can read the shards; nothing is built before the first batch.

        Raises:
            OptionError: They hold images of a format that DALI lacks.
            ShardError: One has no index.
        """
        super().__init__()
        self._dali = dali
        self._graph = graph
        self._device = device
        self._dtype = dtype
        self._prefetch = prefetch
        self._source = graph.source
        self._places = Places(graph.source)
        check_shards(graph.source)
        plan = graph.plan
        first, end = (plan.samples * r // plan.world_size for r in (plan.rank, plan.rank + 1))
        self._mine = end - first  # samples of DALI's part for this rank
        places = -(-plan.samples // plan.world_size)  # with what fills it up
        self._extra = -(-places // plan.batch_size) - len(plan)  # batches that drop_last leaves out
        self._plan: Iterator[Planned] = iter(())
        self._begun: deque[Planned] = deque()
        self._pipe: Any = None

    def next_is(self, epoch: int, start: int) -> bool:
        """Whether the next batch was begun already and is the one at this place."""
        return bool(self._begun) and (self._begun[0].epoch, self._begun[0].start) == (epoch, start)

    def restart(self, plan: Iterator[Planned]) -> None:
        """Drop what was begun, and go on with another plan, which never ends."""
        self.discard()
        self._plan = plan

    def receive(self) -> tuple[Planned, Arrived]:
        """Wait for the next batch, and begin those after it.

        Raises:
            DecodeError: DALI cannot read or decode a sample.
        """
        try:
            while len(self._begun) <= self._prefetch:
                self._begin(next(self._plan))
            planned = self._begun[0]
            images, (encoded,) = take_out(self._pipe, self._device)
            last = planned.end == self._graph.plan.end(len(self._graph.plan) - 1)
            for _ in range(self._extra if last else 0):
                take_out(self._pipe, self._device)
        except RuntimeError as error:
            raise DecodeError(f"{self._source.path}: DALI failed: {brief(error)}") from error
        self._begun.popleft()
        return self._received(planned, images, encoded)

    def discard(self) -> None:
        """End DALI's pipeline: its reader cannot be taken back to where a pass begins."""
        self._begun.clear()
        self._pipe = None

    def leave_to_parent(self) -> None:
        """In a forked child: keep DALI from taking down there, at the end, what has threads."""
        self._kept = None if self._pipe is None else take_from(self._pipe)

    def release(self) -> None:
        """Let DALI go: at the interpreter's end its modules go first."""
        self.discard()

    def close(self) -> None:
        """End DALI's threads."""
        self.discard()

    def _begin(self, planned: Planned) -> None:
        if self._pipe is None:
            self._pipe = self._graph.build(self._dali, planned.epoch)
        self._begun.append(planned)
        self._pipe.schedule_run()
        if planned.end == self._graph.plan.end(len(self._graph.plan) - 1):
            for _ in range(self._extra):
                self._pipe.schedule_run()

    def _received(
        self, planned: Planned, images: torch.Tensor, encoded: Any
    ) -> tuple[Planned, Arrived]:
        count = len(planned.ids)
        ids = self._places.ids([encoded[i].source_info() for i in range(count)])
        done = planned.start // self._graph.plan.world_size
        valid = np.arange(done, done + count) < self._mine
        labels = self._source.rows(ids)["label"].astype(np.int64)
        targets, counted = torch.from_numpy(labels), torch.from_numpy(valid)
        images = images[:count]
        return (
            replace(planned, ids=ids, valid=valid),
            arrived(images, targets, counted, self._device, self._dtype),
        )
