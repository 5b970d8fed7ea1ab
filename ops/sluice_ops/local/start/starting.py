"""Turn services into steps: prepare, start under supervisord, wait until it answers, make what others need of it."""

import threading
import time
from collections.abc import Callable, Iterable

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.steps import Step
from sluice_ops.local.start.supervisord import STOPPED, Supervisor, log_of
from sluice_ops.site.installation import PlatformError
from sluice_ops.site.java import is_of_cache

POLL_SECONDS = 0.15
LOG_LINES = 12


class HaltedError(Exception):
    """Another step has failed, or the user has pressed Ctrl-C: this one was given up."""


def steps_of(where: Layout, supervisor: Supervisor, services: Iterable[Service]) -> list[Step]:
    """Return one step for each service."""
    return [Step(service.name, _starter(where, supervisor, service), service.needs) for service in services]


def _starter(where: Layout, supervisor: Supervisor, service: Service) -> Callable[[threading.Event], str]:
    def act(halt: threading.Event) -> str:
        info = supervisor.states().get(service.name, {})
        ran = info.get("statename") == "RUNNING"
        if not ran:
            service.prepare()
            if halt.is_set():
                raise HaltedError
            supervisor.start(service.name)
        wait_ready(where, supervisor, service, halt)
        service.after()
        return "ran already" if ran else "started"

    return act


def wait_ready(where: Layout, supervisor: Supervisor, service: Service, halt: threading.Event) -> None:
    """Return when the service answers; raise with its last words when it does not."""
    until = time.monotonic() + service.patience
    first_pid = supervisor.states().get(service.name, {}).get("pid")
    while True:
        try:
            service.ready()
        except Exception as error:  # noqa: BLE001  whatever it is, the service does not answer yet
            reason = str(error).strip() or type(error).__name__
        else:
            return
        if halt.wait(POLL_SECONDS):
            raise HaltedError
        info = supervisor.states().get(service.name, {})
        if info.get("statename") in STOPPED or info.get("pid") != first_pid:
            raise PlatformError(
                _failure(where, service, f"has ended ({info.get('description') or info.get('statename')})")
            )
        if time.monotonic() > until:
            raise PlatformError(
                _failure(where, service, f"does not answer after {service.patience:.0f} s: {reason}")
            )


def _failure(where: Layout, service: Service, what: str) -> str:
    log = log_of(where, service.name)
    lines = (
        [line for line in log.read_text(errors="replace").splitlines() if not is_of_cache(line)]
        if log.exists()
        else []
    )
    quoted = "".join(f"\n    {line}" for line in lines[-LOG_LINES:]) or "\n    (its log is empty)"
    advice = (
        service.advice or "Mend what the log says and run it again; what has started stays until `make down`."
    )
    return f"{service.name} {what}. The end of {log}:{quoted}\n  {advice}"
