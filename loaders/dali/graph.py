"""DALI's operators, from encoded bytes to batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdata.device.normalize import Normalization
from fastdata.loaders.dali.feed import Feed, Placement
from fastdata.loaders.dali.imports import DALI

ENCODED = "encoded"


@dataclass(frozen=True)
class Graph:
    """The settings of a DALI pipeline.

    Attributes:
        batch_size: Most samples in a batch, all views together.
        shape: Height and width of the output in pixels.
        threads: DALI's CPU threads.
        device_id: Number of the CUDA device; None for the CPU.
        mixed: Decode with nvJPEG on the device, not on the CPU.
        normalize: Mean and standard deviation; None leaves uint8.
        half: Normalised images are float16, not float32.
    """

    batch_size: int
    shape: tuple[int, int]
    threads: int
    device_id: int | None
    mixed: bool
    normalize: Normalization | None
    half: bool

    def build(self, dali: DALI) -> Any:
        """A pipeline that takes the batches of :func:`feed` and gives (N, h, w, 3).

        Its outputs stay valid for as long as they are held.
        """
        pipeline = dali.pipeline.Pipeline(
            batch_size=self.batch_size,
            num_threads=self.threads,
            device_id=self.device_id,
            prefetch_queue_depth=1,  # runs are scheduled one by one, as batches are ready
            exec_dynamic=True,
        )
        with pipeline:
            # On the CPU the caller holds the bytes until the batch is done. Bytes for nvJPEG are
            # copied into page-locked memory, and DALI decides when it is done with them.
            encoded = dali.fn.external_source(name=ENCODED, batch=True, no_copy=not self.mixed)
            box, size, start, end, position, mirror = (
                dali.fn.external_source(
                    name=name,
                    batch=True,
                    ndim=0 if name == "mirror" else 1,
                    dtype=dali.types.INT32 if name in ("box", "mirror") else dali.types.FLOAT,
                )
                for name in Placement._fields
            )
            images = dali.fn.decoders.image_slice(
                encoded,
                start=box[0:2],
                shape=box[2:4],
                axis_names="WH",
                output_type=dali.types.RGB,
                adjust_orientation=False,
                # libjpeg-turbo's pixels, as nearly as nvJPEG gives them
                **({"device": "mixed", "jpeg_fancy_upsampling": True} if self.mixed else {}),
            )
            if self.device_id is not None and not self.mixed:
                images = images.gpu()
            images = dali.fn.resize(
                images,
                size=size,
                roi_start=start,
                roi_end=end,
                interp_type=dali.types.INTERP_LINEAR,
                antialias=True,
            )
            pipeline.set_outputs(self._normalised(dali, images, position, mirror))
        pipeline.build()
        return pipeline

    def _normalised(self, dali: DALI, images: Any, position: Any, mirror: Any) -> Any:
        """Pad, mirror and normalise; the padding is black before it is normalised."""
        mean, std = np.zeros(3), np.ones(3)
        dtype = dali.types.UINT8
        if self.normalize is not None:
            mean, std = 255 * np.array(self.normalize.mean), 255 * np.array(self.normalize.std)
            dtype = dali.types.FLOAT16 if self.half else dali.types.FLOAT
        return dali.fn.crop_mirror_normalize(
            images,
            dtype=dtype,
            output_layout="HWC",
            crop=self.shape,
            crop_pos_y=position[0],
            crop_pos_x=position[1],
            mirror=mirror,
            mean=mean.tolist(),
            std=std.tolist(),
            out_of_bounds_policy="pad",
            fill_values=(-mean / std).tolist(),
        )


def feed(pipeline: Any, batch: Feed) -> None:
    """Give a pipeline of :meth:`Graph.build` one batch, and begin to run it; returns at once."""
    pipeline.feed_input(ENCODED, batch.encoded)
    for name, values in batch.placement._asdict().items():
        pipeline.feed_input(name, values)
    pipeline.schedule_run()
