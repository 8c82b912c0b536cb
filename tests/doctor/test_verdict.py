"""What the doctor says follows from its figures."""

import dataclasses
from pathlib import Path

import pytest
import torch

import fastdata as fd
from fastdata.doctor.results import (
    Content,
    Copying,
    LoaderSpeed,
    Measured,
    ModelSpeed,
    Reading,
    Remedy,
    Settings,
    Speed,
    Storage,
)
from fastdata.doctor.verdict import (
    advice,
    advised_prefetch,
    advised_threads,
    diagnose,
    expected,
    speeds,
)
from fastdata.doctor.warnings import throttled, warnings
from fastdata.system import resources

SETTINGS = Settings(
    path="train/",
    batch_size=256,
    size=224,
    device="cuda:0",
    dtype="bfloat16",
    threads=8,
    prefetch=2,
    amp="bf16",
    compile=True,
    channels_last=True,
)
GIB = 1 << 30


def reading(speed: float, *, reads: int = 8, slowest: float = 0.01) -> Reading:
    """A reading of 100 kB an image."""
    return Reading(reads, 1000, speed, 1e5 * speed, slowest)


def measured(
    *,
    cold: float | None = 50_000,
    wide: float | None = None,
    slowest: float = 0.01,
    memory: int | None = 100 * GIB,
    decoding: float = 9_000,
    python: float = 200_000,
    copying: float | None = 100_000,
    model: float | None = 3_000,
    remedies: tuple[Remedy, ...] = (),
    settings: Settings = SETTINGS,
    file_system: str | None = None,
    content: Content | None = None,
    kind: str = "tar",
    free: float = 8.0,
) -> Measured:
    """Figures of a machine whose model limits, but for what is named."""
    return Measured(
        settings=settings,
        kind=kind,
        samples=1_000_000,
        content=content or Content(512, 1e5, 375, 1.0, 1.0, 0.0),
        storage=Storage(
            cold=None if cold is None else reading(cold, slowest=slowest),
            cold_wide=None if wide is None else reading(wide, reads=32),
            from_storage=1.0,
            warm=reading(100_000, slowest=slowest),
            file_system=file_system,
            bytes=50 * GIB,
            memory=memory,
        ),
        decoding=(Speed(1, decoding / 7), Speed(8, decoding), Speed(16, 1.5 * decoding)),
        loader=LoaderSpeed(decoding, settings.batch_size / python),
        copying=None if copying is None else Copying(copying, copying * 150_528),
        model=None if model is None else ModelSpeed("resnet50", 256, model),
        remedies=remedies,
        free_cores=free,
        machine={"cores": 8},
    )


# What follows from the figures


@pytest.mark.parametrize(
    ("figures", "limit"),
    [
        (measured(), "model"),
        (measured(decoding=2_000), "decoding"),
        (measured(cold=1_000, memory=GIB), "storage"),
        (measured(python=2_500), "Python"),
        (measured(copying=2_500), "copying"),
        (measured(model=None), "decoding"),
    ],
)
def test_the_slowest_stage_limits(figures: Measured, limit: str) -> None:
    """The stage with the lowest speed is named, and gives the speed of all on a GPU."""
    found = diagnose(figures, ())

    assert found.limit == limit
    assert found.expected == min(found.stages.values()) == found.stages[found.limit]
    assert limit.lower() in found.summary.lower()


def test_share_of_the_ceiling() -> None:
    """The share is that of the model's own speed, and unknown without a model."""
    assert diagnose(measured(), ()).share == 1
    assert diagnose(measured(decoding=1_500), ()).share == 0.5
    assert diagnose(measured(model=None), ()).share is None


def test_on_the_cpu_an_image_costs_the_time_of_all_stages() -> None:
    """Without a GPU, decoding, model and Python add up, the last on one core of eight."""
    found = diagnose(measured(copying=None, decoding=1_000, model=1_000, python=8_000), ())

    assert found.expected == pytest.approx(1 / (1 / 1_000 + 1 / 1_000 + 1 / 64_000))
    assert "share the cores" in found.summary


def test_storage_counts_in_every_epoch_only_where_memory_is_too_small() -> None:
    """What memory can hold is read once: then cold storage slows the first epoch alone."""
    small, large = (diagnose(measured(cold=1_000, memory=m * GIB), ()) for m in (10, 100))

    assert (small.limit, small.expected) == ("storage", 1_000)
    assert (large.limit, large.expected) == ("model", 3_000)
    assert "first epoch" in large.summary
    assert "first epoch" not in small.summary


def test_nothing_is_advised_where_the_model_limits() -> None:
    """Loading that keeps up with a model that uses all its switches needs no change."""
    assert diagnose(measured(), ()).advice == ()


def test_switches_that_are_off_are_advised_where_the_model_limits() -> None:
    """On a GPU, precision, layout and compiler make the model itself faster."""
    plain = dataclasses.replace(SETTINGS, amp="off", compile=False, channels_last=False)

    (one,) = diagnose(measured(settings=plain), ()).advice

    assert one.change == "train with --amp bf16 --channels-last --compile"


def test_packing_is_advised_by_what_it_gains() -> None:
    """Remedies come with the speed of the whole that follows, the largest first, useless never."""
    ways = (
        Remedy("fastdata pack a DST", 1.4, 1.0, "same"),
        Remedy("fastdata pack a DST --resize 256", 3.0, 0.3, "smaller"),
        Remedy("fastdata pack a DST --format jpeg", 1.01, 1.0, "other"),
    )
    figures = measured(decoding=2_000, remedies=ways)

    advised = [one for one in diagnose(figures, ()).advice if "pack" in one.change]

    assert [(one.change, one.images_per_second) for one in advised] == [
        ("fastdata pack a DST --resize 256", 3_000),  # then the model limits
        ("fastdata pack a DST", 2_800),
    ]


def test_smaller_files_help_storage_that_limits() -> None:
    """Where each epoch reads from storage, packing in fewer bytes makes that faster."""
    ways = (Remedy("fastdata pack a DST --resize 256", 3.0, 0.5, "smaller"),)
    figures = measured(cold=1_000, memory=GIB, remedies=ways)

    (found,) = (one for one in advice(figures, "storage") if "pack" in one.change)

    assert found.images_per_second == 2_000


@pytest.mark.parametrize(
    ("figures", "number"),
    [
        (measured(), 8),
        (measured(decoding=2_000), 16),  # 16 threads decode 3,000
        (measured(cold=1_000, wide=2_500, memory=GIB), 32),  # answers slowly, many at a time
        (measured(cold=1_000, wide=1_100, memory=GIB), 8),
        (measured(cold=1_000, wide=2_500), 8),  # memory holds it: only once
    ],
)
def test_threads(figures: Measured, number: int) -> None:
    """Another number of threads is advised only where the whole gets faster by it."""
    assert advised_threads(figures) == number
    assert any(one.change == f"threads={number}" for one in diagnose(figures, ()).advice) == (
        number != 8
    )


def test_prefetch_covers_the_slowest_read() -> None:
    """So many batches are begun ahead that the model has work while the slowest read lasts."""
    assert advised_prefetch(measured()) == 2
    assert advised_prefetch(measured(slowest=0.3)) == 5  # 3.5 batches of 256 at 3,000 images/s
    assert advised_prefetch(measured(slowest=60)) == 16
    assert any(one.change == "prefetch=5" for one in diagnose(measured(slowest=0.3), ()).advice)


def test_advice_against_storage() -> None:
    """Slow storage is answered with a local disk, where it is remote, and with memory."""
    figures = measured(cold=1_000, memory=GIB, file_system="nfs4")

    changes = [one.change for one in diagnose(figures, ()).advice]

    assert "copy the data set to a local disk" in changes
    assert "use a machine with 53.7 GB of memory free" in changes


def test_advice_where_decoding_cannot_be_helped() -> None:
    """Without a better way to pack, the number of threads that would keep up is stated."""
    figures = dataclasses.replace(measured(decoding=1_000), decoding=(Speed(8, 1_000),))

    (one,) = diagnose(figures, ()).advice

    assert one.change == "use a machine with 24 cores for decoding"


def test_larger_batches_are_advised_where_python_limits() -> None:
    """Python's part of a batch is the same for more images."""
    (one,) = diagnose(measured(python=2_000), ()).advice

    assert (one.change, one.images_per_second) == ("batch_size=512", 3_000)


def test_stages_that_do_not_exist_are_left_out() -> None:
    """On the CPU nothing is copied; without a model there is none."""
    assert set(speeds(measured(copying=None, model=None))) == {"storage", "decoding", "Python"}
    assert expected(measured(model=None), speeds(measured(model=None))) == 9_000


def test_the_line_makes_the_loader(shards: Path) -> None:
    """What --apply prints is Python that makes the loader with the settings advised."""
    here = dataclasses.replace(SETTINGS, path=str(shards), batch_size=4, size=16, device="cpu")
    line = diagnose(measured(settings=here, decoding=2_000), ()).loader

    scope: dict[str, object] = {"fd": fd, "torch": torch}
    exec(line, scope)  # noqa: S102

    loader = scope["loader"]
    assert isinstance(loader, fd.Loader)
    with loader:
        images, labels = next(iter(loader))
    assert images.shape == (4, 3, 16, 16)
    assert images.dtype == torch.bfloat16
    assert labels.shape == (4,)
    assert "threads=16" in line


# What else is noticed


def test_a_healthy_machine_gets_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """With runs, a local disk, free cores and the core there is nothing to say."""
    monkeypatch.setattr("fastdata.native.load", object)
    monkeypatch.setattr(resources, "cpu_affinity", lambda: 8)
    monkeypatch.setattr(resources, "cpu_quota", lambda: float("inf"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")

    assert warnings(measured(), 0) == ()


def test_warnings_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the known troubles has its own sentence."""
    monkeypatch.setattr("fastdata.native.load", lambda: None)
    monkeypatch.setattr(resources, "cpu_affinity", lambda: 64)
    monkeypatch.setattr(resources, "cpu_quota", lambda: 1.5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    content = Content(512, 1e5, 375, jpeg=0.9, runs=0.4, progressive=0.2)
    figures = measured(free=0.7, content=content, file_system="nfs4", cold=None)

    found = " | ".join(warnings(figures, 3))

    for part in (
        "native core was not built",
        "allows 1.5 of the 64 cores",
        "only 0.7 of 2 cores were free",
        "64 threads on 2 cores: set OMP_NUM_THREADS=2",
        "OMP_WAIT_POLICY is active",
        "slowed down 3 times",
        "50% of the images are JPEGs without restart markers",
        "20% of the images are progressive",
        "10% of the images are not JPEGs",
        "network file system (nfs4)",
        "cold cache could not be measured",
    ):
        assert part in found


def test_throttling_is_counted_over_all_cores(tmp_path: Path) -> None:
    """The kernel's counters of all cores add up; where there are none it is 0."""
    assert throttled(tmp_path) == 0
    for cpu, count in (("cpu0", "2\n"), ("cpu11", "3\n"), ("cpufreq", "9\n")):
        path = tmp_path / cpu / "thermal_throttle"
        path.mkdir(parents=True)
        (path / "core_throttle_count").write_text(count)

    assert throttled(tmp_path) == 5
