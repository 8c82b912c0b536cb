"""Everything that fastdata raises on purpose.

    FastdataError
    |-- OptionError          an argument out of range, or contradicting another    (ValueError)
    |-- SourceError          a source that is missing or holds no image            (ValueError)
    |-- DestinationError     a destination with something in it that a pack would destroy
    |   `-- BusyError        another process is packing into it
    |-- NotADatasetError     neither a packed data set nor a folder of images
    |-- CorruptError         bytes on disk that are not what was written
    |   |-- ManifestError    dataset.json
    |   |-- CatalogError     the catalog
    |   |-- ShardError       a shard that is missing, truncated, or of another size
    |   |-- SampleError      one sample, whose bytes do not match their CRC32C
    |   `-- BudgetError      more bad samples than fd.Replace allows
    |-- StateError           a state or checkpoint that does not fit               (ValueError)
    |-- DecodeError          one image that cannot be decoded                      (ValueError)
    |-- DeviceError          a device that takes no batch, or has no room for it   (RuntimeError)
    |-- ThreadError          a system that starts no thread, or no process         (RuntimeError)
    |-- TransformError       the user's transform failed, or its process died      (RuntimeError)
    |-- StalledError         a batch that does not arrive                          (TimeoutError)
    |-- RankError            another rank of a training run that ended or hangs    (RuntimeError)
    |-- DivergedError        a training run whose loss is infinite or NaN    (ArithmeticError)
    `-- MissingExtraError    an optional package that is not installed             (ImportError)

The command line exits with 1 on a CorruptError and with 2 on all others.
"""


class FastdataError(Exception):
    """Base of every error that fastdata raises on purpose."""


class OptionError(FastdataError, ValueError):
    """An argument is out of range, or contradicts another one."""


class SourceError(FastdataError, ValueError):
    """The source of a pack is missing, unreadable, or holds no image."""


class DestinationError(FastdataError):
    """The destination holds something that a pack would destroy."""


class BusyError(DestinationError):
    """Another living process is packing into this destination."""


class NotADatasetError(FastdataError):
    """The path is neither a packed data set nor a folder of images."""


class CorruptError(FastdataError):
    """Bytes on disk are not the ones that were written."""


class ManifestError(CorruptError):
    """dataset.json is unreadable, was altered, or has an unknown version."""


class CatalogError(CorruptError):
    """The catalog is truncated or does not match its checksums."""


class ShardError(CorruptError):
    """A shard is missing, truncated, or not the size that the manifest states."""


class SampleError(CorruptError):
    """The bytes of one sample do not match their CRC32C."""


class BudgetError(CorruptError):
    """More samples are bad than ``fd.Replace`` allows."""


class StateError(FastdataError, ValueError):
    """A loader's state or a checkpoint is unreadable, or fits another data set or other options."""


class DecodeError(FastdataError, ValueError):
    """One image cannot be decoded."""


class DeviceError(FastdataError, RuntimeError):
    """A batch cannot be page-locked, copied to its device, or held there."""


class ThreadError(FastdataError, RuntimeError):
    """The system refuses to start a thread or a process."""


class TransformError(FastdataError, RuntimeError):
    """The user's transform failed on a sample, or a process that runs it died."""


class StalledError(FastdataError, TimeoutError):
    """A batch did not arrive before the deadline; most likely storage hangs."""


class RankError(FastdataError, RuntimeError):
    """Another rank of a distributed run ended, or did not answer within the timeout."""


class DivergedError(FastdataError, ArithmeticError):
    """The loss of a training run became infinite or NaN."""


class MissingExtraError(FastdataError, ImportError):
    """A feature needs an optional package that is not installed."""
