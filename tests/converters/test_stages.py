"""The sink runs what it is given in order, holds back who gives too much, and keeps no error."""

import threading
import time
from functools import partial

import pytest

from fastdata.converters.stages import Sink


@pytest.fixture
def gate() -> threading.Event:
    """Opened by a test to let the sink's thread go on."""
    return threading.Event()


def test_everything_runs_in_order() -> None:
    """On one other thread, and join waits for all of it."""
    sink = Sink()
    seen: list[tuple[int, int]] = []

    def note(number: int) -> None:
        seen.append((number, threading.get_ident()))

    for number in range(1000):
        sink.put(partial(note, number), 1)
    sink.join()
    sink.close()

    assert [number for number, _ in seen] == list(range(1000))
    assert len({thread for _, thread in seen}) == 1
    assert seen[0][1] != threading.get_ident()


def test_too_many_bytes_hold_back(gate: threading.Event) -> None:
    """No more wait than the bound; a single larger one is taken where nothing waits."""
    sink = Sink(most_bytes=100)
    sink.put(partial(gate.wait, 30), 60)
    sink.put(lambda: None, 40)
    third = threading.Thread(target=lambda: sink.put(lambda: None, 1000))
    third.start()
    third.join(0.2)
    assert third.is_alive()

    gate.set()
    third.join(240)
    sink.join()
    sink.close()

    assert not third.is_alive()
    assert sink.waited > 0


def test_an_error_comes_out_as_it_is() -> None:
    """Nothing runs after it, and every later call raises it again."""
    sink = Sink()
    error = OSError(28, "No space left on device")
    seen: list[int] = []

    def fail() -> None:
        raise error

    sink.put(fail)
    with pytest.raises(OSError, match="No space left") as raised:
        sink.join()
    with pytest.raises(OSError, match="No space left"):
        sink.put(lambda: seen.append(1))
    sink.close()

    assert raised.value is error
    assert seen == []


def test_closing_drops_what_waits(gate: threading.Event) -> None:
    """The callable that runs ends, no other begins, and the thread is gone."""
    sink = Sink()
    seen: list[int] = []
    started = threading.Event()

    def slow() -> None:
        started.set()
        gate.wait(240)
        seen.append(0)

    sink.put(slow)
    sink.put(lambda: seen.append(1))
    assert started.wait(240)
    closing = threading.Thread(target=sink.close)
    closing.start()
    while not sink._thread._closed:
        time.sleep(0.001)
    gate.set()
    closing.join(240)
    sink.close()

    assert seen == [0]
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("fastdata-write")
    ]


def test_unused_it_has_no_thread() -> None:
    """Join and close return at once."""
    sink = Sink()
    sink.join()
    sink.close()
