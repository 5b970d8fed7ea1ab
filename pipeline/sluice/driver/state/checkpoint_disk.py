"""The disk of a tier's checkpoints: while it is full or slow, records wait in Kafka, and the tier says so. Called by engines."""

import threading

from sluice.driver.counters import Flow
from sluice.driver.state.checkpoint_store import Depot
from sluice.failures import DISK_FULL_ERRNOS, DiskFullError

EVERY_SECONDS = 10.0
"""Between two looks at the disk: each writes a small file."""
SLOW_SECONDS = 5.0
"""A disk that takes longer to write a small file is slow: each batch writes a dozen."""


def require_room(depot: Depot) -> None:
    """Write a small file; DiskFullError where the disk is full."""
    try:
        depot.probe()
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        message = f"the disk of {depot} is full: make room there; records wait in Kafka meanwhile, and the tier goes on by itself"
        raise DiskFullError(message) from error


class CheckpointDisk:
    """Looks at the disk from `start` to `stop`, and says in `flow.checkpoint` what is wrong with it."""

    def __init__(self, depot: Depot, flow: Flow) -> None:
        """Prepare; nothing is written yet."""
        self._depot, self._flow = depot, flow
        self._over = threading.Event()

    def start(self) -> None:
        """Look from now on."""
        threading.Thread(target=self._watch, name="checkpoint disk", daemon=True).start()

    def stop(self) -> None:
        """Look no more, without waiting for the disk."""
        self._over.set()
        self._flow.checkpoint = None

    def _watch(self) -> None:
        slow = (
            f"the disk of {self._depot} takes more than {SLOW_SECONDS:g} s to write a small file, and each batch waits for it: look at "
            f"that disk, or at the network to it; records wait in Kafka meanwhile"
        )
        while not self._over.wait(EVERY_SECONDS):
            found: list[str | None] = []
            look = threading.Thread(
                target=lambda found=found: found.append(self._look()),
                name="look at the checkpoint disk",
                daemon=True,
            )
            look.start()
            look.join(SLOW_SECONDS)
            if not found:
                self._say(slow)
                look.join()
                self._say(found[0] or slow)
            else:
                self._say(found[0])

    def _say(self, what: str | None) -> None:
        if not self._over.is_set():
            self._flow.checkpoint = what

    def _look(self) -> str | None:
        try:
            require_room(self._depot)
        except (DiskFullError, OSError) as error:
            return str(error)
        return None
