"""The ends of the certificates with which this site's machines reach the services."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from cryptography import x509

log = structlog.get_logger()

READ_SECONDS = 600.0
"""Time between two reads of the files."""


class Certificates:
    """Reads the files again from time to time, because a person renews them."""

    def __init__(self, files: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Read these files; one that is not on this machine, or not for its user, is left out."""
        self._files = files
        self._clock = clock
        self._due = 0.0
        self._ends: dict[str, float] = {}

    def __call__(self) -> dict[str, float]:
        """Return for each file when its first certificate ends. Epoch seconds."""
        if self._clock() >= self._due:
            self._due = self._clock() + READ_SECONDS
            self._ends = {file: end for file in self._files if (end := _end(file)) is not None}
        return self._ends


def _end(file: str) -> float | None:
    try:
        certificates = x509.load_pem_x509_certificates(Path(file).read_bytes())
    except (FileNotFoundError, PermissionError):
        return None
    except (OSError, ValueError) as error:
        log.warning("a certificate cannot be read, so its end is not known", file=file, error=str(error))
        return None
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)
