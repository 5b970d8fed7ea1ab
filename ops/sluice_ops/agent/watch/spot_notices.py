"""What EC2 announces for this instance: the end of a spot instance, or that it may end soon.

A thread asks the instance's metadata service (IMDSv2) every 5 s. The agent reports the notices, and
the controller drains the host (`controller/policies/ending_hosts.py`).
"""

import json
import threading
from collections.abc import Callable
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

import structlog

log = structlog.get_logger()

POLL_SECONDS = 5.0
ANSWER_SECONDS = 2.0
"""How long the metadata service may take to answer."""
TOKEN_SECONDS = 21600
"""How long a token of the metadata service is valid."""
_ACTION, _REBALANCE = "spot/instance-action", "events/recommendations/rebalance"
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


class _UnexpectedAnswerError(Exception):
    """The metadata service answered something else than a notice."""


class SpotNotices:
    """The notices of one instance, as the metadata service last gave them."""

    def __init__(self, address: str | None) -> None:
        """Ask the metadata service at this address, such as `http://169.254.169.254`.

        None: the host is no instance of EC2, and there are no notices.
        """
        self._url = urlsplit(address or "")
        self._token: str | None = None
        self._fault = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.ends_at: float | None = None
        """When EC2 ends the instance. Epoch seconds."""
        self.at_risk_since: float | None = None
        """When EC2 recommended to leave the instance. Epoch seconds."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to ask; `wake` is called after each new notice."""
        if not self._url.hostname:
            return
        self._thread = threading.Thread(target=self._watch, args=(wake,), name="spot notices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End to ask; an answer that is under way is waited for."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2 * ANSWER_SECONDS)

    def read(self) -> bool:
        """Ask once; return whether a notice is new. After an error, the last notices stay."""
        before = self.ends_at, self.at_risk_since
        try:
            action, rebalance = self._notice(_ACTION), self._notice(_REBALANCE)
            self.ends_at = None if action is None else _seconds(action["time"])
            self.at_risk_since = None if rebalance is None else _seconds(rebalance["noticeTime"])
            self._fault = ""
        except (OSError, HTTPException, KeyError, TypeError, ValueError, _UnexpectedAnswerError) as error:
            fault = f"{type(error).__name__}: {error}"
            if fault != self._fault:
                log.warning(
                    "spot notices cannot be read from the metadata service; the agent retries; "
                    "without a notice, a host that EC2 ends counts as lost",
                    address=self._url.geturl(),
                    error=fault,
                )
            self._fault = fault
        if (self.ends_at, self.at_risk_since) == before:
            return False
        log.warning("EC2 gives notice", ends_at=self.ends_at, at_risk_since=self.at_risk_since)
        return True

    def _watch(self, wake: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            if self.read():
                wake()
            self._stopped.wait(POLL_SECONDS)

    def _notice(self, name: str) -> Any:
        """Return a notice; None if there is none."""
        for _ in range(2):
            if self._token is None:
                header = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                status, body = self._ask("PUT", "/latest/api/token", header)
                if status != _OK:
                    message = f"no token: status {status}"
                    raise _UnexpectedAnswerError(message)
                self._token = body.decode()
            status, body = self._ask(
                "GET", f"/latest/meta-data/{name}", {"X-aws-ec2-metadata-token": self._token}
            )
            if status != _UNAUTHORIZED:
                break
            self._token = None
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            message = f"{name}: status {status}"
            raise _UnexpectedAnswerError(message)
        return json.loads(body)

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = HTTPConnection(self._url.hostname or "", self._url.port or 80, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, f"{self._url.path}{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _seconds(time: str) -> float:
    """Return a time such as `2026-11-25T08:22:00Z` as epoch seconds."""
    return datetime.fromisoformat(time).timestamp()
