"""DALI's operators, from encoded bytes to batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdata.device.normalize import Normalization
from fastdata.loaders.dali.imports import DALI
from fastdata.loaders.dali.plan import Placement

ENCODED = "encoded"


@dataclass(frozen=True)
class Graph:
    """What a pipeline is made of.

    Attributes:
        batch_size: Most samples in a batch, all views together.
        shape: Height and width of the output in pixels.
        threads: DALI's CPU threads.
        device_id: Number of the CUDA device; None for the CPU.
        mixed: Decode with nvJPEG on the device, not on the CPU.
        normalize: What to normalise with; None leaves uint8.
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
        """A pipeline that takes what :meth:`inputs` names and gives (N, h, w, 3)."""
        with self.empty(dali) as pipeline:
            # On the CPU the caller holds the bytes until the batch is done. Bytes for nvJPEG are
            # copied: into page-locked memory, and who reads them last is its own affair.
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
                **self.decoding(dali),
            )
            images = dali.fn.resize(
                self.on_device(images),
                size=size,
                roi_start=start,
                roi_end=end,
                interp_type=dali.types.INTERP_LINEAR,
                antialias=True,
            )
            pipeline.set_outputs(self.finish(dali, images, position, mirror))
        pipeline.build()
        return pipeline

    def empty(self, dali: DALI, seed: int = 0) -> Any:
        """A pipeline without operators, whose outputs stay valid for as long as they are held."""
        return dali.pipeline.Pipeline(
            batch_size=self.batch_size,
            num_threads=self.threads,
            device_id=self.device_id,
            seed=seed,
            prefetch_queue_depth=1,  # runs are scheduled one by one, as batches are ready
            exec_dynamic=True,
        )

    def decoding(self, dali: DALI) -> dict[str, Any]:
        """Arguments of a decoder: libjpeg-turbo's pixels, as nearly as nvJPEG gives them."""
        common = {"output_type": dali.types.RGB, "adjust_orientation": False}
        return (
            {**common, "device": "mixed", "jpeg_fancy_upsampling": True}
            if self.mixed
            else {**common, "device": "cpu"}
        )

    def on_device(self, images: Any) -> Any:
        """Decoded pixels where the rest of the work is done."""
        return images if self.device_id is None or self.mixed else images.gpu()

    def finish(self, dali: DALI, images: Any, position: Any, mirror: Any) -> Any:
        """Pad, mirror and normalise; what is padded is black before it is normalised."""
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


def feed(pipeline: Any, encoded: list[Any], placement: Placement) -> None:
    """Give a pipeline of :meth:`Graph.build` one batch, and begin to run it; returns at once."""
    pipeline.feed_input(ENCODED, encoded)
    for name, values in placement._asdict().items():
        pipeline.feed_input(name, values)
    pipeline.schedule_run()
