"""Something that happens again and again in a thread, while a test goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(action: Callable[[], object], every: float) -> Iterator[None]:
    """Call `action` each `every` seconds until the end of the block."""
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.wait(every):
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
