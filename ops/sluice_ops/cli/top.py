"""`sluice top`: a live view of hosts, tiers, changes and alerts in the terminal."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import text
from sluice_ops.model.status import TierState
from sluice_ops.queries.alerts import AlertLine
from sluice_ops.queries.formats import ago
from sluice_ops.queries.lines import HostLine, TierLine

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, Group
    from rich.table import Table
    from rich.text import Text

    from sluice_ops.channel import Channel
    from sluice_ops.snapshot.mirror import Mirror

EVERY_SECONDS = 2.0
"""The time between two looks; drivers write their figures as often."""
OLDEST = 200
"""How many nodes each look reads again, which corrects missed watches."""
MOST_NOTES = 6
HEAD_LINES = 2
"""The lines of a table's head: the names of its columns, and the rule below them."""

TIER_COLUMNS = {
    "tier": 0,
    "state": 0,
    "in/s": 1,
    "out/s": 5,
    "lag": 0,
    "p50": 7,
    "p99": 4,
    "workers": 2,
    "driver": 3,
    "inc.": 6,
}
"""Column → rank. A narrow terminal leaves out columns of a high rank first, and rank 0 never."""
ALERT_COLUMNS = {"alert": 0, "severity": 1, "for": 2, "what": 0}
HOST_COLUMNS = {"host": 0, "zone": 1, "state": 0, "drivers": 0, "workers": 0}
CUT = {"state": 12, "what": 30}
"""Column whose cells may be cut → the characters that stay until other columns are left out.

No word for a tier's state is longer than these.
"""
CUT_LAST = {"what": 10, "tier": 8, "alert": 12, "host": 8}
"""The same once all other columns are left out. A figure is never cut."""
APART = 3
"""The characters between two columns."""

app = typer.Typer()


@dataclass(frozen=True)
class Screen:
    """What the command has read of the platform; before the first answer, nothing."""

    at: float = 0.0
    controller: str = "No controller has reported yet."
    steps: tuple[dict[str, Any], ...] = ()
    tiers: Sequence[TierLine] = ()
    hosts: Sequence[HostLine] = ()
    alerts: Sequence[AlertLine] = ()
    notes: Sequence[str] = field(default=())


@app.command(epilog="Example: sluice top")
def top() -> None:
    """Show hosts, tiers, changes and alerts live, until Ctrl-C.

    The view is refreshed every two seconds. Its content is that of `sluice status`. A narrow
    terminal shows fewer columns. While ZooKeeper does not answer, the last content stays, with its
    age.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415
    from sluice_ops.snapshot.mirror import Mirror  # noqa: PLC0415

    if not sys.stdout.isatty():
        message = "sluice top needs a terminal, and stdout is none. For one answer: sluice status"
        raise WrongUsageError(message)
    console = Console(highlight=False, markup=False)
    with (
        suppress(KeyboardInterrupt),
        open_channel() as channel,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        for screen, away in _looks(channel, Mirror(channel)):
            live.update(render(screen, away, console.size, time.time()), refresh=True)


def _looks(channel: "Channel", mirror: "Mirror") -> Iterator[tuple[Screen, str | None]]:
    """Yield what each look sees, and why it sees nothing new; a look every two seconds."""
    from sluice_ops.channel import ChannelAwayError  # noqa: PLC0415

    screen = Screen()
    while True:
        try:
            screen, away = look(channel, mirror), None
        except ChannelAwayError as error:
            away = str(error)
        yield screen, away
        time.sleep(EVERY_SECONDS)


def look(channel: "Channel", mirror: "Mirror") -> Screen:
    """Read the snapshot, the figures and the alerts."""
    from sluice_ops.operations.alerts import read_alerts, read_requests  # noqa: PLC0415
    from sluice_ops.operations.snapshot import the_site  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415
    from sluice_ops.queries.alerts import lines  # noqa: PLC0415
    from sluice_ops.queries.alerts import notes as alert_notes  # noqa: PLC0415
    from sluice_ops.queries.figures import read_figures  # noqa: PLC0415
    from sluice_ops.queries.sources import source_lines  # noqa: PLC0415
    from sluice_ops.queries.status import shares_of, status_of, troubles  # noqa: PLC0415
    from sluice_ops.site import project  # noqa: PLC0415
    from sluice_ops.snapshot.view import read_view  # noqa: PLC0415

    mirror.invalidate_oldest(OLDEST)
    view, record = read_view(mirror, mirror), read_alerts(channel)
    figures, now = read_figures(), time.time()
    shares = shares_of(view, the_site)
    status = status_of(view, shares, figures, project.home(), now, source_lines(view, {}, now))
    tiers = describe.tiers(view, figures)
    return Screen(
        at=now,
        controller=Screen.controller
        if view.status is None
        else f"Controller {view.status.leader}: {view.status.sentence}",
        steps=tuple(status["doing"]),
        tiers=tiers,
        hosts=describe.hosts(view),
        alerts=[line for line in lines(record, read_requests(channel)) if line.state != "waits"],
        notes=[*troubles(tiers), *status["notes"], *alert_notes(record), *shares.notes],
    )


def render(screen: Screen, away: str | None, size: "ConsoleDimensions", now: float) -> "Group":
    """Return the view for a terminal of this size; lines that do not fit are counted.

    Alerts get lines first, then tiers, notes and hosts.
    """
    from rich.console import Group  # noqa: PLC0415

    head = [_header(screen, away, now)]
    head += [_step(step) for step in screen.steps] or ["No change is in progress."]
    most_alerts = max(1, min(MOST_NOTES, size.height // 6))
    alerts, tiers, notes, hosts = _fitting(
        size.height - len(head),
        (
            _Part(len(screen.alerts), most_alerts, HEAD_LINES),
            _Part(len(screen.tiers), len(screen.tiers), HEAD_LINES),
            _Part(len(screen.notes), MOST_NOTES, 0),
            _Part(len(screen.hosts), len(screen.hosts), HEAD_LINES),
        ),
    )
    in_order = screen.tiers if tiers == len(screen.tiers) else sorted(screen.tiers, key=_trouble_first)
    tables = (
        (TIER_COLUMNS, [_tier(tier) for tier in in_order], tiers, "tiers: sluice tiers"),
        (ALERT_COLUMNS, [_alert(alert) for alert in screen.alerts], alerts, "alerts: sluice alert"),
        (
            HOST_COLUMNS,
            [_host(host) for host in sorted(screen.hosts, key=lambda host: host.state == "up")],
            hosts,
            "hosts: sluice hosts",
        ),
    )
    body: list[Table | Text] = []
    for columns, rows, count, what in tables:
        body += [_table(columns, rows[:count], size.width)] if count else []
        body += map(_line, _more(len(rows) - count, what))
    below = (*screen.notes[:notes], *_more(len(screen.notes) - notes, "notes: sluice status"))
    return Group(*map(_line, head), *body, *map(_line, below))


class _Part(NamedTuple):
    """A part of the view."""

    lines: int
    most: int
    """The most lines that it shows."""
    head: int
    """The lines above its first line."""


def _fitting(room: int, parts: Sequence[_Part]) -> Iterator[int]:
    """Yield how many lines of each part fit; a part that is not whole has one line more, which
    counts the rest.
    """
    for number, part in enumerate(parts, start=1):
        own = room - sum(later.lines > 0 for later in parts[number:])
        is_whole = part.lines <= part.most and part.head + part.lines <= own
        shown = part.lines if is_whole else max(0, min(part.most, own - part.head - 1))
        room -= (part.head + shown if shown else 0) + (shown < part.lines)
        yield shown


def _trouble_first(tier: TierLine) -> tuple[bool, int]:
    """Return a key that sorts tiers in trouble first, then those with the largest lag."""
    return tier.state == TierState.RUNNING and tier.held_for is None, -(tier.lag or 0)


def _line(words: str) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    return Text(words, no_wrap=True, overflow="ellipsis")


def _header(screen: Screen, away: str | None, now: float) -> str:
    if away is None:
        return f"{time.strftime('%H:%M:%S', time.localtime(screen.at))}  {screen.controller}"
    age = f"The content is {now - screen.at:.0f} s old: " if screen.at else ""
    return f"{age}{away}"


def _step(step: dict[str, Any]) -> str:
    at = f"step {step['step']}" if step["step"] else "between steps"
    verdict = step["progress"] and step["progress"]["verdict"]
    left = "" if not step["progress"] else f", about {step['progress']['seconds_left']:.0f} s left, {verdict}"
    return f"In progress: {step['what']}, {at} for {ago(step['since'])}{left}: {step['sentence']}"


def _tier(tier: TierLine) -> tuple[object, ...]:
    held = "" if tier.held_for is None else f", throttled for {tier.held_for}"
    following = "" if tier.next is None else f" → {tier.next}"
    return (
        tier.name,
        tier.state + held,
        _count(tier.rate_in),
        _count(tier.rate_out),
        _count(tier.lag),
        _milliseconds(tier.latency_ms),
        _milliseconds(tier.latency_p99_ms),
        tier.workers_in_words,
        tier.driver.host,
        f"{text(tier.incarnation)}{following}",
    )


def _alert(alert: AlertLine) -> tuple[object, ...]:
    return alert.key, alert.severity, ago(alert.since), alert.happened


def _host(host: HostLine) -> tuple[object, ...]:
    beside = [word for word, holds in (("quarantine", host.quarantine), ("busy", host.busy_since)) if holds]
    return host.name, host.zone, ", ".join((host.state, *beside)), len(host.drivers), len(host.slots)


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f} ms"


def _more(count: int, what: str) -> list[str]:
    return [f"… and {count} more {what}"] if count > 0 else []


def _table(columns: Mapping[str, int], rows: Sequence[Sequence[object]], width: int) -> "Table":
    """Return the columns that fit the width; a cell that is cut ends with an ellipsis."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    cells = [tuple(map(text, row)) for row in rows]
    widths = {name: max(map(len, (name, *cut))) for name, *cut in zip(columns, *cells, strict=True)}
    for name in sorted(columns, key=lambda name: columns[name], reverse=True):
        least = sum(min(each, CUT.get(column, each)) + APART for column, each in widths.items()) - APART
        if least <= width or not columns[name]:
            break
        del widths[name]
    for limits in (CUT, CUT_LAST):
        for name in (name for name in limits if name in widths):
            excess = sum(widths.values()) + APART * (len(widths) - 1) - width
            widths[name] = max(min(widths[name], limits[name]), widths[name] - max(0, excess))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, characters in widths.items():
        table.add_column(name, width=characters, no_wrap=True)
    for row in cells:
        table.add_row(*(_line(cell) for name, cell in zip(columns, row, strict=True) if name in widths))
    return table
