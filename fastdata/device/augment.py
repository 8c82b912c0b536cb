"""Augmentation of whole batches on the device, for ``Loader(augment=...)``.

torchvision's ``v2.MixUp`` and ``v2.CutMix`` fit there as they are. Here are transforms that
torchvision draws once for a batch, and that should be drawn for each image.
"""

import math

import torch

from fastdata.errors import OptionError

_ATTEMPTS = 10  # torchvision's number


class RandomErasing:
    """Erase a random rectangle of each image with some probability (Zhong et al. 2020).

    Each image is treated as torchvision's ``RandomErasing`` treats one; that one itself erases the
    same rectangle in the whole batch. Nothing waits for the device. Random numbers are those of
    torch's global generator of the images' device.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float = 0.0,
    ) -> None:
        """Check the arguments, whose defaults are torchvision's.

        Args:
            p: Probability that an image is changed.
            scale: Smallest and largest share of the image's area, drawn uniformly.
            ratio: Smallest and largest height / width, drawn log-uniformly. Where ten draws do not
                fit the image, it stays as it is.
            value: Written into the rectangle; 0 is the mean of normalised images.

        Raises:
            OptionError: One is out of range.
        """
        if not 0 <= p <= 1:
            raise OptionError(f"p is a probability from 0 to 1, found {p}")
        for name, pair, most in (("scale", scale, 1.0), ("ratio", ratio, math.inf)):
            if not 0 < pair[0] <= pair[1] <= most:
                raise OptionError(f"{name} must be (low, high) with 0 < low <= high, found {pair}")
        self._p = p
        self._scale = scale
        self._ratio = ratio
        self._value = value

    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Erase; the images are new, the labels the same.

        Args:
            images: (N, C, H, W), of any type.
            labels: Anything.
        """
        boxes = self._boxes(len(images), images.shape[-2], images.shape[-1], images.device)
        top, left, height, width = boxes.T[:, :, None]  # (N, 1) each
        y, x = (torch.arange(size, device=images.device) for size in images.shape[-2:])
        rows = (y >= top) & (y < top + height)  # (N, H)
        columns = (x >= left) & (x < left + width)  # (N, W)
        erased = rows[:, None, :, None] & columns[:, None, None, :]  # (N, 1, H, W)
        # the out-of-place masked_fill would lose channels_last
        return images.clone().masked_fill_(erased, self._value), labels

    def _boxes(self, count: int, height: int, width: int, device: torch.device) -> torch.Tensor:
        """(N, 4) top, left, height and width of each rectangle; 0 erases nothing."""
        draws = torch.rand(count, 2, _ATTEMPTS, device=device)
        low, high = self._scale
        area = height * width * (low + (high - low) * draws[:, 0])  # (N, 10)
        low, high = map(math.log, self._ratio)
        aspect = torch.exp(low + (high - low) * draws[:, 1])
        tall, wide = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        fits = (tall < height) & (wide < width)
        first = fits.int().argmax(1, keepdim=True)  # (N, 1)
        chance, *place = torch.rand(count, 3, device=device).T  # (N,) each
        done = fits.gather(1, first).squeeze(1) & (chance < self._p)
        tall, wide = (side.gather(1, first).squeeze(1) * done for side in (tall, wide))  # (N,)
        top, left = place[0] * (height - tall + 1), place[1] * (width - wide + 1)
        return torch.stack([top.floor(), left.floor(), tall, wide], 1)
