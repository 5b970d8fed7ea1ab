"""Silence alerts, and request a test of their channels."""

import secrets
import time
from collections.abc import Callable

from sluice_ops.channel import Channel, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRecord, AlertRequests, AlertTest, Report, Silence
from sluice_ops.operations.recorded_changes import change_node

POLL_SECONDS = 0.3
FORGET_SECONDS = 86_400.0
"""How long an ended silence, or a report, stays in the node."""
MOST_REPORTS = 100


def read_alerts(channel: Channel) -> AlertRecord:
    """Return the site's alerts; an empty record if no controller has written one."""
    read = channel.read(paths.ALERTS, AlertRecord)
    return AlertRecord() if read is None else read.value


def read_requests(channel: Channel) -> AlertRequests:
    """Return the silences and the last test."""
    read = channel.read(paths.ALERT_REQUESTS, AlertRequests)
    return AlertRequests() if read is None else read.value


def silence(channel: Channel, key: str, until: float, by: str) -> None:
    """Tell nothing of the alerts of a key, which may contain `*`, until then. Epoch seconds.

    ConflictError if it cannot be written.
    """

    def silenced(before: AlertRequests) -> AlertRequests:
        lasting = {
            name: each for name, each in before.silences.items() if each.until > time.time() - FORGET_SECONDS
        }
        mine = Silence(until=until, by=by, at=time.time())
        return before.model_copy(update={"silences": {**lasting, key: mine}})

    _change(channel, silenced, by, f"alert silence {key}")


def unsilence(channel: Channel, key: str, by: str) -> bool:
    """End a silence; return whether there was one. ConflictError if it cannot be written."""
    if key not in read_requests(channel).silences:
        return False

    def unsilenced(before: AlertRequests) -> AlertRequests:
        left = {name: each for name, each in before.silences.items() if name != key}
        return before.model_copy(update={"silences": left})

    _change(channel, unsilenced, by, f"alert unsilence {key}")
    return True


def request_test(channel: Channel, name: str | None, by: str) -> str:
    """Request a test message to one channel, or to all; return the id of the request."""
    test = AlertTest(id=secrets.token_hex(4), channel=name, by=by)
    _change(
        channel, lambda before: before.model_copy(update={"test": test}), by, f"alert test {name or 'all'}"
    )
    return test.id


def report(channel: Channel, task: str, failure: Report, by: str) -> None:
    """Let the controller tell of a task that failed; a later report of the task replaces it.

    ConflictError if it cannot be written.
    """

    def reported(before: AlertRequests) -> AlertRequests:
        fresh = {name: each for name, each in before.reports.items() if each.at > failure.at - FORGET_SECONDS}
        newest = dict(sorted(fresh.items(), key=lambda item: item[1].at)[-MOST_REPORTS:])
        return before.model_copy(update={"reports": {**newest, task: failure}})

    _change(channel, reported, by, f"alert report {task}")


def wait_for_test(channel: Channel, identity: str, seconds: float) -> AlertRecord | None:
    """Return the record once each tested channel has taken the message or failed.

    None if that has not happened within `seconds`.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        record = read_alerts(channel)
        waiting = any(message.key == f"test:{identity}" for message in record.messages)
        if record.tested == identity and not waiting:
            return record
        time.sleep(POLL_SECONDS)
    return None


def _change(channel: Channel, change: Callable[[AlertRequests], AlertRequests], by: str, what: str) -> None:
    def changed(before: AlertRequests | None) -> AlertRequests:
        if before is None:
            message = (
                f"{paths.ALERT_REQUESTS} could not be written: the controller has not made it yet, or it "
                "cannot be read; is a controller running? Next: sluice status"
            )
            raise ConflictError(message)
        return change(before)

    change_node(channel, paths.ALERT_REQUESTS, AlertRequests, changed, by=by, what=what)
