"""Alerts by e-mail and webhook: the failure callback of every runbook's tasks, once for each try.

With `channels` in the site file's `alerts`, the controller tells all alerts. A failure that the
controller knows is then only logged here, and any other failure is reported to the controller.
Without `channels`, the alert goes to the addresses in `alerts` from here.

The callback runs in a worker, in the DAG processor or in the triggerer, so it uses only the site
file, the control channel and the callback's context. In any case, the alert is written to the log
and to a file below `alerts/` in SLUICE_HOME.
"""

import asyncio
import json
import logging
import re
import smtplib
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook, BaseNotifier, Connection
from airflow.sdk.definitions.context import Context

from sluice_airflow.errors import (
    AbortFailedError,
    EndedByPersonError,
    NoResultError,
    NothingPostedError,
    PipelineFailedError,
    StepFailedError,
    TierFailedError,
)
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.channel import ChannelAwayError, ConflictError
from sluice_ops.model.alert import AIRFLOW, Report, author_reads
from sluice_ops.model.resources import Frozen
from sluice_ops.operations.alerts import report
from sluice_ops.operations.requests import change_id
from sluice_ops.site.site_file import Alerts

log = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""How long a mail server or a webhook may take to answer.

The run's abort waits for this: it begins only after the failed task's callback has returned.
"""
RETRY_DELAY_SECONDS = 1.0
"""The pause before an address gets its second try."""
BY_CONNECTION = "conn:"
"""The prefix of an address that names an Airflow connection, which can hold a login."""


class Alert(Frozen):
    """The content of one alert."""

    dag: str
    run: str
    task: str
    attempt: int
    happened: str
    did: str
    do: str
    log: str = ""
    change: str = ""
    """The change whose abort had no result; empty for any other failure."""

    @property
    def key(self) -> str:
        """The identity of one try of one task, equal in every process that runs the callback."""
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", f"{self.dag}.{self.run}.{self.task}.{self.attempt}")

    @property
    def subject(self) -> str:
        return f"[sluice] {self.dag}: {self.task} failed"

    @property
    def text(self) -> str:
        lines = [
            f"What happened: {self.happened}",
            f"What the platform did: {self.did}",
            f"What to do: {self.do}",
            f"Run: {self.dag} / {self.run}, task {self.task}, try {self.attempt}",
        ]
        return "\n\n".join([*lines, *([f"Log: {self.log}"] if self.log else [])])


class SluiceNotifier(BaseNotifier):
    """Send one alert: what happened, what the platform did, what to do."""

    def __init__(self, *, did: str, do: str, sluice_conn_id: str | None = None) -> None:
        """Take the alert's two fixed parts: what the platform does by itself, and what a person has
        to do.

        The site file that the connection names has the addresses.
        """
        super().__init__()
        self.did = did
        self.do = do
        self.sluice_conn_id = sluice_conn_id

    def of(self, sluice_conn_id: str | None) -> "SluiceNotifier":
        """Return this notifier with the addresses of another connection's pipeline."""
        return SluiceNotifier(did=self.did, do=self.do, sluice_conn_id=sluice_conn_id)

    def notify(self, context: Context) -> None:
        """Send from a worker or the DAG processor, unless a person ended the run or reads its
        answer.
        """
        if not isinstance(context.get("exception"), EndedByPersonError) and not _author_reads(context):
            self.send(self.alert(context), known=_is_known(context))

    async def async_notify(self, context: Context) -> None:
        """Send from the triggerer, in a thread, so that its event loop is not blocked."""
        alert = self.alert(context)
        await asyncio.to_thread(self.send, alert, known=_is_known(context))

    def alert(self, context: Context) -> Alert:
        """Build the alert; the context holds different keys in worker, DAG processor and
        triggerer.
        """
        task = context.get("ti") or context.get("task_instance")
        error = context.get("exception")
        reason = (
            str(error).strip()
            if error
            else str(context.get("reason") or "the task ended without a message; read its log")
        )
        dag = getattr(task, "dag_id", None) or getattr(context.get("dag"), "dag_id", "unknown")
        name = getattr(task, "task_id", "the run")
        run = str(getattr(task, "run_id", None) or context.get("run_id") or "unknown")
        return Alert(
            dag=dag,
            run=run,
            task=name,
            attempt=int(getattr(task, "try_number", 0) or 0),
            happened=f"{name} of {dag} failed: {reason}",
            did=self.did,
            do=self.do,
            log=str(getattr(task, "log_url", "") or ""),
            change=change_id(f"{dag}.{run}") if isinstance(error, NoResultError) else "",
        )

    def send(self, alert: Alert, *, known: bool) -> None:
        """Send to every address that has not received this try's alert.

        With channels in the site file, report to the controller instead, unless the failure is
        `known` to it.

        An address that fails is tried a second time. If that fails too, raise ConnectionError;
        another callback of the same try sends to that address again.
        """
        self.log.error("ALERT %s\n%s", alert.subject, alert.text)
        hook = SluiceHook(self.sluice_conn_id)
        addresses = hook.site().alerts
        if addresses.channels and known:
            self.log.info("The controller tells this alert: `sluice alert` lists it")
            return
        file = hook.home / "alerts" / f"{alert.key}.json"
        channels = _claim(file, alert, (PLATFORM,) if addresses.channels else tuple(ADDRESSES))
        if not channels:
            self.log.info("Another callback has sent this alert: %s", file)
            return
        senders: dict[str, Callable[[Alert, Alerts], None]] = {**ADDRESSES, PLATFORM: partial(_report, hook)}
        with ThreadPoolExecutor() as pool:
            sent = {name: pool.submit(_send_twice, senders[name], alert, addresses) for name in channels}
        failures = {
            name: str(error) for name, sending in sent.items() if (error := sending.exception()) is not None
        }
        if failures:
            reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
            with suppress(OSError):
                file.write_text(_serialized(alert, list(failures), reasons))
            message = (
                f"the alert could not be sent ({reasons}), and is kept in {file}; "
                "check `alerts:` in the site file"
            )
            raise ConnectionError(message)


PLATFORM = "the controller"
"""The receiver of alerts in a site with channels."""


def _is_known(context: Context) -> bool:
    """Tell whether the controller tells the failure: it failed the step, or the tier.

    A failed abort is news beside the failed step, so the controller has to hear of it.
    """
    error = context.get("exception")
    unknown = AbortFailedError | NothingPostedError | PipelineFailedError
    return isinstance(error, StepFailedError | TierFailedError) and not isinstance(error, unknown)


def _author_reads(context: Context) -> bool:
    """Tell whether the failure is a refused dry run that a person has triggered."""
    is_refusal = isinstance(context.get("exception"), StepFailedError)
    dry_run = bool((context.get("params") or {}).get("dry_run"))
    run = getattr(context.get("ti"), "run_id", "")
    return is_refusal and dry_run and author_reads(f"{AIRFLOW}dag/{run}", dry_run=True)


def _report(hook: SluiceHook, alert: Alert, _addresses: Alerts) -> None:
    """Report the failure to the controller; OSError if the control channel does not take it."""
    task = f"{alert.dag}.{alert.task}"
    failure = Report(
        what=f"{alert.task} of {alert.dag}",
        reason=alert.happened,
        did=alert.did,
        do=alert.do,
        link=alert.log,
        change=alert.change,
        at=time.time(),
    )
    try:
        with hook.open() as channel:
            report(channel, task, failure, by=f"airflow:{alert.dag}/{alert.run}")
    except (ChannelAwayError, ConflictError) as error:
        raise OSError(str(error)) from error


def _send_twice(send: Callable[[Alert, Alerts], None], alert: Alert, addresses: Alerts) -> None:
    """Send, with one retry: a mail server or a webhook may just be restarting."""
    try:
        send(alert, addresses)
    except OSError:
        time.sleep(RETRY_DELAY_SECONDS)
        send(alert, addresses)


def _claim(file: Path, alert: Alert, channels: tuple[str, ...]) -> list[str]:
    """Write the alert's file, and return the channels to send to now.

    The list is empty if another callback has sent the alert or is sending it.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x") as new:
                new.write(_serialized(alert))
        except FileExistsError:
            unsent = _unsent(file, channels)
            if unsent:
                file.write_text(_serialized(alert))
            return unsent
    except OSError as error:  # send all the same: a full disk may be what the alert is about
        log.warning("the alert cannot be written to %s: %s", file.parent, error)
    return list(channels)


def _unsent(file: Path, channels: tuple[str, ...]) -> list[str]:
    """Return the channels that have not received a written alert.

    A file that cannot be parsed is being written by another callback: that callback sends the
    alert.
    """
    try:
        return [name for name in channels if name in json.loads(file.read_text())["unsent"]]
    except (ValueError, KeyError):
        return []


def _serialized(alert: Alert, unsent: Sequence[str] = (), why: str = "") -> str:
    """Return the content of an alert's file, with the channels that failed; `sluice doctor` reads
    it.
    """
    return json.dumps(
        {**alert.model_dump(), "subject": alert.subject, "text": alert.text, "unsent": unsent, "why": why},
        indent=1,
    )


def _connection(address: str) -> Connection | None:
    return (
        BaseHook.get_connection(address.removeprefix(BY_CONNECTION))
        if address.startswith(BY_CONNECTION)
        else None
    )


def _tls_context(connection: Connection | None) -> ssl.SSLContext:
    """Return a context that verifies the server.

    The authority is the connection's `ca`, or one that the machine trusts.
    """
    authority_file = None if connection is None else connection.extra_dejson.get("ca")
    return ssl.create_default_context(cafile=authority_file)


def _mail(alert: Alert, addresses: Alerts) -> None:
    if not addresses.smtp or not addresses.email_to:
        return
    message = EmailMessage()
    message["Subject"] = alert.subject
    message["From"] = addresses.email_from
    message["To"] = ", ".join(addresses.email_to)
    message["X-Sluice-Alert"] = alert.key
    message.set_content(alert.text)
    connection = _connection(addresses.smtp)
    if connection is None:
        host, _, port = addresses.smtp.rpartition(":")
        with smtplib.SMTP(
            host, int(port), local_hostname=socket.gethostname(), timeout=SEND_SECONDS
        ) as server:
            server.send_message(message)
        return
    host, number = connection.host or "localhost", connection.port or 587
    with smtplib.SMTP(host, number, local_hostname=socket.gethostname(), timeout=SEND_SECONDS) as server:
        # without a context, smtplib accepts any certificate, and the password goes to whoever holds
        # it
        server.starttls(context=_tls_context(connection))
        if connection.login:
            server.login(connection.login, connection.password or "")
        server.send_message(message)


def _post(alert: Alert, addresses: Alerts) -> None:
    if not addresses.webhook:
        return
    connection = _connection(addresses.webhook)
    url = addresses.webhook if connection is None else str(connection.host)
    if not url.startswith(("http://", "https://")):
        message = f"alerts.webhook is {url!r}: an http:// or https:// address is needed"
        raise ValueError(message)
    headers = {"Content-Type": "application/json"}
    if connection is not None and connection.password:
        headers["Authorization"] = f"Bearer {connection.password}"
    body: dict[str, Any] = {**alert.model_dump(), "subject": alert.subject, "text": alert.text}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    tls = _tls_context(connection)
    with urllib.request.urlopen(request, timeout=SEND_SECONDS, context=tls):  # noqa: S310
        pass


ADDRESSES = {"e-mail": _mail, "webhook": _post}
