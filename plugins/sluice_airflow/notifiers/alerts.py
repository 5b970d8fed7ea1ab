"""Alerts: by e-mail and webhook, as the site file says, once for each try of a task. Callback of every runbook's tasks.

It may run in a worker, in the DAG processor or in the triggerer, so it needs nothing but the site file and what the callback's
context has. Without any address an alert is still written below `alerts/` in SLUICE_HOME, to the log, and shown by Airflow.
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
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook, BaseNotifier, Connection
from airflow.sdk.definitions.context import Context

from sluice_airflow import forms
from sluice_airflow.errors import EndedByPersonError
from sluice_ops.model.resources import Frozen
from sluice_ops.site import endpoints
from sluice_ops.site.site_file import Alerts

log = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""How long a mail server or a webhook may take to answer: a failed task ends, and its abort begins, only when its callback is through."""
AGAIN_SECONDS = 1.0
"""Between the two tries of a way."""
BY_CONNECTION = "conn:"
"""An address in the site file that starts so names an Airflow connection, which can hold a login."""


class Alert(Frozen):
    """What a person is told."""

    dag: str
    run: str
    task: str
    attempt: int
    happened: str
    did: str
    do: str
    log: str = ""

    @property
    def key(self) -> str:
        """The same for the same try of the same task, wherever the callback runs."""
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", f"{self.dag}.{self.run}.{self.task}.{self.attempt}")

    @property
    def subject(self) -> str:
        """One line."""
        return f"[sluice] {self.dag}: {self.task} failed"

    @property
    def text(self) -> str:
        """The whole message."""
        lines = [
            f"What happened: {self.happened}",
            f"What the platform did: {self.did}",
            f"What to do: {self.do}",
            f"Run: {self.dag} / {self.run}, task {self.task}, try {self.attempt}",
        ]
        return "\n\n".join([*lines, *([f"Log: {self.log}"] if self.log else [])])


class SluiceNotifier(BaseNotifier):
    """Sends one alert: what happened, what the platform did, what to do."""

    def __init__(self, *, did: str, do: str) -> None:
        """Say what the platform does by itself about a failure here, and what is left for a person."""
        super().__init__()
        self.did = did
        self.do = do

    def notify(self, context: Context) -> None:
        """Send, from a worker or the DAG processor; not to tell people what one of them has done."""
        if not isinstance(context.get("exception"), EndedByPersonError):
            self.send(self.alert(context))

    async def async_notify(self, context: Context) -> None:
        """Send, from the triggerer, without holding up its loop."""
        alert = self.alert(context)
        await asyncio.to_thread(self.send, alert)

    def alert(self, context: Context) -> Alert:
        """Make the message of what the callback knows, which is not the same everywhere."""
        task = context.get("ti") or context.get("task_instance")
        error = context.get("exception")
        reason = (
            str(error).strip()
            if error
            else str(context.get("reason") or "it ended without a message; its log tells more")
        )
        dag = getattr(task, "dag_id", None) or getattr(context.get("dag"), "dag_id", "unknown")
        name = getattr(task, "task_id", "the run")
        return Alert(
            dag=dag,
            run=str(getattr(task, "run_id", None) or context.get("run_id") or "unknown"),
            task=name,
            attempt=int(getattr(task, "try_number", 0) or 0),
            happened=f"{name} of {dag} failed: {reason}",
            did=self.did,
            do=self.do,
            log=str(getattr(task, "log_url", "") or ""),
        )

    def send(self, alert: Alert) -> None:
        """Send to every address, unless this try's alert was sent there before; what fails is tried once more, and by another callback."""
        self.log.error("ALERT %s\n%s", alert.subject, alert.text)
        file = endpoints.home() / "alerts" / f"{alert.key}.json"
        ways = _claim(file, alert)
        if not ways:
            self.log.info("This alert was sent before: %s", file)
            return
        addresses = forms.the_site().alerts
        with ThreadPoolExecutor() as both:
            sent = {way: both.submit(_twice, WAYS[way], alert, addresses) for way in ways}
        failures = {way: str(error) for way, done in sent.items() if (error := done.exception()) is not None}
        if failures:
            said = "; ".join(f"{way}: {error}" for way, error in failures.items())
            with suppress(OSError):
                file.write_text(_kept(alert, list(failures), said))
            message = f"the alert could not be sent ({said}), and is kept in {file}; look at `alerts:` in the site file"
            raise ConnectionError(message)


def _twice(send: Callable[[Alert, Alerts], None], alert: Alert, addresses: Alerts) -> None:
    """Send; a mail server or a webhook that fails once may be only starting again."""
    try:
        send(alert, addresses)
    except OSError:
        time.sleep(AGAIN_SECONDS)
        send(alert, addresses)


def _claim(file: Path, alert: Alert) -> list[str]:
    """Keep the alert, and return the ways in which it is to be sent now: none when another callback did, or is at it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x") as new:
                new.write(_kept(alert))
        except FileExistsError:
            ways = _unsent(file)
            if ways:
                file.write_text(_kept(alert))
            return ways
    except OSError as error:  # a disk that is full is just what a person has to be told of
        log.warning("the alert is not kept in %s: %s", file.parent, error)
    return list(WAYS)


def _unsent(file: Path) -> list[str]:
    """Return the ways in which a kept alert could not be sent; one that cannot be read is just being written by another callback."""
    try:
        return [way for way in WAYS if way in json.loads(file.read_text())["unsent"]]
    except (ValueError, KeyError):
        return []


def _kept(alert: Alert, unsent: Sequence[str] = (), why: str = "") -> str:
    """Write an alert down, with the ways in which it could not be sent; `sluice doctor` reads that."""
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


def _trusting(connection: Connection | None) -> ssl.SSLContext:
    """Return how a server proves its name: by a certificate of an authority that the machine trusts, or that the connection names."""
    named = None if connection is None else connection.extra_dejson.get("ca")
    return ssl.create_default_context(cafile=named)


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
        server.starttls(
            context=_trusting(connection)
        )  # smtplib by itself would take any certificate, and say the password to its owner
        if connection.login:
            server.login(connection.login, connection.password or "")
        server.send_message(message)


def _post(alert: Alert, addresses: Alerts) -> None:
    if not addresses.webhook:
        return
    connection = _connection(addresses.webhook)
    url = addresses.webhook if connection is None else str(connection.host)
    if not url.startswith(("http://", "https://")):
        message = f"webhook {url!r} is no http(s) address"
        raise ValueError(message)
    headers = {"Content-Type": "application/json"}
    if connection is not None and connection.password:
        headers["Authorization"] = f"Bearer {connection.password}"
    body: dict[str, Any] = {**alert.model_dump(), "subject": alert.subject, "text": alert.text}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - the scheme is checked
    with urllib.request.urlopen(request, timeout=SEND_SECONDS, context=_trusting(connection)):  # noqa: S310
        pass


WAYS = {"e-mail": _mail, "webhook": _post}
