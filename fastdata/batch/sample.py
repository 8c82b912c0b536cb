"""What one record of a data set is."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One image with its label, as the readers yield it.

    A named tuple, so that ``torch.utils.data.default_collate`` batches it as it is.

    Attributes:
        key: Name of the sample within its data set, for example ``"cats/0001"``.
        label: Index into the data set's ``classes``; -1 where the source has none.
        image: Encoded bytes, or an RGB array of shape (H, W, 3), uint8, or whatever a transform
            left here.
        fields: Further fields by extension, for example ``{"json": b"..."}``; empty for most.
        id: Row in the catalog, from 0 to the number of samples - 1; the same in every epoch.
    """

    key: str
    label: int
    image: Any
    fields: Mapping[str, bytes]
    id: int
