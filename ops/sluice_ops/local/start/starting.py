"""Make a step of each service: prepare, start under supervisord, wait for an answer, finish."""

import threading
import time
from collections.abc import Callable, Iterable

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.steps import Step
from sluice_ops.local.start.supervisord import STOPPED, Supervisor, log_of
from sluice_ops.process.logs import is_jvm_notice
from sluice_ops.site.installation import PlatformError

POLL_SECONDS = 0.15
LOG_LINES = 12


class HaltedError(Exception):
    """The step was given up, because another step failed or the user pressed Ctrl-C."""


def steps_of(layout: Layout, supervisor: Supervisor, services: Iterable[Service]) -> list[Step]:
    """Return one step for each service."""
    return [Step(service.name, _starter(layout, supervisor, service), service.needs) for service in services]


def _starter(layout: Layout, supervisor: Supervisor, service: Service) -> Callable[[threading.Event], str]:
    def act(halt: threading.Event) -> str:
        info = supervisor.states().get(service.name, {})
        running = info.get("statename") == "RUNNING"
        if not running:
            service.prepare()
            if halt.is_set():
                raise HaltedError
            supervisor.start(service.name)
        wait_ready(layout, supervisor, service, halt)
        service.after()
        return "already running" if running else "started"

    return act


def wait_ready(layout: Layout, supervisor: Supervisor, service: Service, halt: threading.Event) -> None:
    """Return when the service answers; PlatformError quotes the end of its log if it does not.

    HaltedError if `halt` is set.
    """
    deadline = time.monotonic() + service.ready_seconds
    first_pid = supervisor.states().get(service.name, {}).get("pid")
    while True:
        try:
            service.ready()
        except Exception as error:  # noqa: BLE001  any error means that the service does not answer yet
            reason = str(error).strip() or type(error).__name__
        else:
            return
        if halt.wait(POLL_SECONDS):
            raise HaltedError
        info = supervisor.states().get(service.name, {})
        if info.get("statename") in STOPPED or info.get("pid") != first_pid:
            state = info.get("description") or info.get("statename")
            raise PlatformError(_failure(layout, service, f"ended during its start ({state})"))
        if time.monotonic() > deadline:
            event = f"did not answer within {service.ready_seconds:.0f} s: {reason}"
            raise PlatformError(_failure(layout, service, event))


def _failure(layout: Layout, service: Service, event: str) -> str:
    log = log_of(layout, service.name)
    lines = (
        [line for line in log.read_text(errors="replace").splitlines() if not is_jvm_notice(line)]
        if log.exists()
        else []
    )
    last = "".join(f"\n    {line}" for line in lines[-LOG_LINES:]) or "\n    (the log is empty)"
    advice = (
        service.advice
        or "Correct the cause and start again; services that have started run until `sluice down`."
    )
    return f"{service.name} {event}. The end of {log}:{last}\n  {advice}"
