"""`python -m tests.burn KIND`: use all there is of one resource, until killed.

`work SECONDS [PROCESSOR]` prints how many units of work one core does in that time.
"""

import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

MEBIBYTE = 1 << 20
BLOCK = b"sluice" * 2000


def work(seconds: float) -> int:
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.sha256(BLOCK).digest()
        done += 1
    return done


def cpu() -> None:
    for _ in range(2 * (os.cpu_count() or 1)):
        if os.fork() == 0:
            break
    while True:
        work(60.0)


def memory() -> None:
    """Fork children that take more and more memory; the kernel kills one after the other."""
    while True:
        child = os.fork()
        if child == 0:
            held = []
            while True:
                held.append(bytearray(os.urandom(4096)) * 1024)
        os.waitpid(child, 0)


def disk() -> None:
    with tempfile.NamedTemporaryFile() as file:
        descriptor, block = file.fileno(), os.urandom(MEBIBYTE)
        while True:
            os.lseek(descriptor, 0, os.SEEK_SET)
            for _ in range(64):
                os.write(descriptor, block)
                os.fdatasync(descriptor)


def threads() -> None:
    """Start threads until the kernel refuses, again and again."""
    forever = threading.Event()
    threading.stack_size(64 * 1024)
    while True:
        try:
            threading.Thread(target=forever.wait, daemon=True).start()
        except RuntimeError:
            time.sleep(0.01)


KINDS: dict[str, Callable[[], None]] = {"cpu": cpu, "memory": memory, "disk": disk, "threads": threads}


def main() -> None:
    kind, *more = sys.argv[1:]
    if kind == "work":
        if more[1:]:
            os.sched_setaffinity(0, {int(more[1])})
        sys.stdout.write(f"{work(float(more[0]))}\n")
    else:
        tempfile.tempdir = str(Path.cwd())
        KINDS[kind]()


if __name__ == "__main__":
    main()
