"""Ctrl-C waits for the request that is under way. Called by the client.

kazoo takes whatever is raised while it hands over a request for a closed connection, and counts on one wake-up for each request: an
interrupt in that moment would be lost, the channel would seem away, and stopping would wait for ever.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Have interrupts take effect at the end of the block; they reach only the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # None stands for a handler that Python has not set, and could not set again
    before = {number: handler for number in INTERRUPTS if (handler := signal.getsignal(number)) is not None}
    try:
        for number in before:
            signal.signal(number, lambda which, _: came.append(which))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for which in came:
            signal.raise_signal(which)
