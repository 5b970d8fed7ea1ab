"""Defer Ctrl-C and SIGTERM until the current request is done. Used by the client.

kazoo takes any exception while it sends a request for a lost connection, and it needs one wake-up
for each request. So an interrupt at that moment would be lost, the channel would seem to be down,
and stopping would never end.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Deliver interrupts at the end of the block, in the main thread.

    In other threads, do nothing: signals reach only the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []
    # A handler of None was not set by Python, so Python could not restore it.
    handlers = {number: handler for number in INTERRUPTS if (handler := signal.getsignal(number)) is not None}
    try:
        for number in handlers:
            signal.signal(number, lambda received, _: deferred.append(received))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received in deferred:
            signal.raise_signal(received)
