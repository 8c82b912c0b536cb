"""What loaders of batches have in common, however their batches are filled."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

from fastdata.batch.batch import Augment, Batch
from fastdata.batch.source import Source
from fastdata.loaders.finish import Finish
from fastdata.loaders.passes import Passes, Stage
from fastdata.loaders.ranks import check_same, rank_and_world_size
from fastdata.plan.batch_plan import BatchPlan
from fastdata.plan.crop import Crop
from fastdata.plan.epochs import Epochs


class BatchLoader:
    """Passes over a data set, with their state; see :class:`fastdata.Loader`.

    Attributes:
        source: The data set; ``source.classes`` are the names of the labels.
    """

    def __init__(
        self,
        source: Source,
        epochs: Epochs,
        plan: BatchPlan,
        stage: Stage,
        *,
        own_rank: bool,
        crop: Crop,
        flip: float,
        views: int,
        augment: Augment | None,
        release: Callable[[], None],
    ) -> None:
        """Stand at the beginning of epoch 0.

        Args:
            source: The data set.
            epochs: What is drawn from it.
            plan: How an epoch is cut into this rank's batches.
            stage: Fills them.
            own_rank: Whether rank and world size are torch.distributed's, not given.
            crop: What is cut out of each image.
            flip: Probability of a horizontal flip.
            views: Crops of each sample.
            augment: The user's function over batches, or None.
            release: Called when the loader is gone; it must not refer to it.
        """
        self.source = source
        self._ranks = rank_and_world_size(None, None) if own_rank else None
        self._plan = plan
        self._pipeline = stage
        self._passes = Passes(
            epochs,
            plan,
            stage,
            {"crop": repr(crop), "flip": flip, "views": views},
            Finish(source, views, augment),
        )
        # threads end with the last of the loader and its passes
        self._passes.when_gone(release)

    def __len__(self) -> int:
        """Batches in a full pass, the same on every rank."""
        return len(self._plan)

    @property
    def epoch(self) -> int:
        """Epoch of the pass that begins next."""
        return self._passes.next[0]

    @property
    def replaced(self) -> int:
        """Bad samples that this rank has replaced so far."""
        return self._pipeline.replaced

    @property
    def quarantined(self) -> Sequence[Mapping[str, object]]:
        """Those samples, as the quarantine file lists them: key, error, and what came instead."""
        return self._pipeline.quarantined

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the pass that begins next."""
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: behind the last batch that was handed out, on all ranks.

        It is the same on every rank, and small JSON. After the last batch of a pass it is the
        beginning of the next epoch.
        """
        return self._passes.state_dict()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], *, override: Collection[str] = ()
    ) -> None:
        """Make the next pass go on where a state was taken; a pass under way ends.

        World size, batch size, threads and device may be others than they were.

        Args:
            state_dict: From :meth:`state_dict`, perhaps by way of JSON.
            override: Names of fields that may differ, for example ``["crop"]``.

        Raises:
            StateError: It is of another data set or other options, or no state at all.
        """
        self._passes.load_state_dict(state_dict, override)

    def __iter__(self) -> Iterator[Batch]:
        """Begin a pass; it ends the one before it.

        Raises:
            OptionError: The loader was closed, or this is a forked child of the process that made
                it.
        """
        self._passes.require_open()
        check_same(self._ranks)
        return self._passes.begin()

    def __getitem__(self, number: object) -> NoReturn:
        """Refuse a DataLoader around the loader, which would ask for single samples."""
        raise TypeError("iterate over a loader itself, not a DataLoader of it; see fastdata.open")

    def close(self) -> None:
        """End the threads and release the files. Batches that were handed out stay valid.

        Any thread may call it: where another one waits in ``next()``, that raises ``OptionError``.
        In a forked child nothing happens, as the threads are not the child's.
        """
        if self._passes.is_here():
            self._passes.close()
            self.source.close()

    def __reduce__(self) -> NoReturn:
        """Threads and buffers cannot be sent."""
        raise TypeError("a loader cannot be pickled; make it in the process that uses it")

    def __enter__(self) -> Self:
        """Use the loader in a with statement, which closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()
