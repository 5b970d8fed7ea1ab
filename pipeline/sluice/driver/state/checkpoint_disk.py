"""Watches the disk of a tier's checkpoints: while it is full or slow, records wait in Kafka, and
the report says why.
"""

import threading

from sluice.driver.counters import Flow
from sluice.driver.state.checkpoint_store import Depot
from sluice.failures import DISK_FULL_ERRNOS, DiskFullError

EVERY_SECONDS = 10.0
"""Time between two checks of the disk; each writes a small file."""
SLOW_SECONDS = 5.0
"""A disk that needs longer for a small file is slow, for each batch writes a dozen."""


def require_room(depot: Depot) -> None:
    """Write and remove a small file; DiskFullError if the disk is full."""
    try:
        depot.probe()
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        message = (
            f"the disk of {depot} is full: make room there; "
            "records wait in Kafka, and the tier then continues by itself"
        )
        raise DiskFullError(message) from error


class CheckpointDisk:
    """Checks the disk from `start` to `stop`, and puts its trouble into `flow.checkpoint`."""

    def __init__(self, depot: Depot, flow: Flow) -> None:
        """Prepare; nothing is written yet."""
        self._depot, self._flow = depot, flow
        self._over = threading.Event()

    def start(self) -> None:
        """Begin the checks."""
        threading.Thread(target=self._watch, name="checkpoint disk", daemon=True).start()

    def stop(self) -> None:
        """End the checks, without waiting for the disk."""
        self._over.set()
        self._flow.checkpoint = None

    def _watch(self) -> None:
        slow = (
            f"the disk of {self._depot} takes more than {SLOW_SECONDS:g} s to write a small file, and each "
            "batch waits for it: check that disk, or the network to it; records wait in Kafka meanwhile"
        )
        while not self._over.wait(EVERY_SECONDS):
            results: list[str | None] = []
            probe = threading.Thread(
                target=lambda results=results: results.append(self._probe()),
                name="look at the checkpoint disk",
                daemon=True,
            )
            probe.start()
            probe.join(SLOW_SECONDS)
            if not results:
                self._report(slow)
                probe.join()
                self._report(results[0] or slow)
            else:
                self._report(results[0])

    def _report(self, trouble: str | None) -> None:
        if not self._over.is_set():
            self._flow.checkpoint = trouble

    def _probe(self) -> str | None:
        try:
            require_room(self._depot)
        except (DiskFullError, OSError) as error:
            return str(error)
        return None
