"""What the page shows of one pipeline, from the queries of `sluice status` and the other lists."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sluice_airflow.hooks.sluice import SluiceHook, shared_channel
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.alert import AlertRecord, AlertRequests
from sluice_ops.model.batch import BatchGrants
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.share import LayerEntry, Numbers
from sluice_ops.model.source import SourceFigures
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.queries import alerts, batch_queue, describe
from sluice_ops.queries.figures import Figures
from sluice_ops.queries.history import changes_of
from sluice_ops.queries.lines import ChangeLine, SlotLine
from sluice_ops.queries.sources import source_lines
from sluice_ops.queries.status import shares_of, status_of, troubles
from sluice_ops.queries.verdicts import verdict
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.mirror import Mirror
from sluice_ops.snapshot.sources import source_figures
from sluice_ops.snapshot.view import View, read_view

SECTIONS = ("controller", "doing", "hosts", "tiers", "sources", "shares", "replays")
"""What the page shows as `sluice status` does."""
CHANGES = 20
"""The number of changes that the page lists."""
OLDEST, CORRECT_SECONDS = 25, 5.0
"""How many nodes are read again, and how often, which corrects missed watches within minutes.

Each takes a question to ZooKeeper. With many in each look, looks last seconds on a busy machine,
and the page shows a dead driver that much later.
"""


class PipelineReader:
    """Reads the content of one pipeline; a look reads only the nodes that have changed.

    For one reading thread at a time.
    """

    def __init__(self, connection: str | None) -> None:
        """Read the pipeline of this connection."""
        self._connection = connection
        self._wakers: list[Callable[[], None]] = []
        self._hook = SluiceHook(connection)
        self._channel: Channel | None = None
        self._mirror: Mirror | None = None
        self._corrected = 0.0
        """When old nodes were last read again, in monotonic seconds."""
        self.view: View | None = None
        """The snapshot of the last look that succeeded, for any thread."""

    def on_change(self, waker: Callable[[], None]) -> None:
        """Have `waker` called when a node changes that was read; it must not block."""
        self._wakers.append(waker)

    def __call__(self) -> dict[str, Any]:
        """Return the content as JSON values; an error of `feed.AWAY` says why there is none."""
        channel = shared_channel(self._connection).get()
        if self._mirror is None or channel is not self._channel:
            self._channel, self._mirror = channel, Mirror(channel)
            for waker in self._wakers:
                channel.on_wake(waker)
        if time.monotonic() - self._corrected > CORRECT_SECONDS:
            self._corrected = time.monotonic()
            self._mirror.invalidate_oldest(OLDEST)
        self.view = read_view(self._mirror, self._mirror)
        record = self._mirror.read(paths.ALERTS, AlertRecord, watch=True)
        requests = self._mirror.read(paths.ALERT_REQUESTS, AlertRequests, watch=True)
        shown = alerts.shown(
            AlertRecord() if record is None else record.value,
            AlertRequests() if requests is None else requests.value,
        )
        sources = source_figures(channel, self.view)
        return {**content(self.view, self._hook.figures(), self._hook, sources), "alerts": shown}


def content(
    view: View, figures: Figures, hook: SluiceHook, of_sources: Mapping[str, SourceFigures]
) -> dict[str, Any]:
    """Return the content of the page as JSON values, without the time of the look.

    So a section is equal as long as nothing in it has changed.
    """
    shares = shares_of(view, hook.site)
    now = time.time()
    sources = source_lines(view, of_sources, now)
    status = status_of(view, shares, figures, hook.home, now, sources)
    changes = changes_of(view, CHANGES + 1)
    return {
        "figures_missing": figures.missing,
        "shifts": _shifts(hook),
        **{name: status[name] for name in SECTIONS},
        "notes": [*troubles(describe.tiers(view, figures)), *status["notes"], *shares.notes],
        "layers": [_layer(entry) for entry in view.layers.entries],
        "slots": [_slot(line) for line in describe.slots(view, figures)],
        "changes": [change_of(view, line) for line in changes[-CHANGES:]],
        "older_changes": len(changes) > CHANGES,
        "holds": [line.model_dump(mode="json") for line in describe.holds(view)],
        "audit": [
            {
                **line.model_dump(mode="json", exclude={"at"}),
                "verdict": verdict(line, figures.lost(line.tier)),
                "lost": figures.lost(line.tier),
            }
            for line in figures.audit
        ],
        "batch_jobs": [
            line.model_dump(
                mode="json", include={"job", "tenant", "state", "slots", "wanted", "since", "reason"}
            )
            for line in batch_queue.jobs(view.batch_requests, view.batch_grants or BatchGrants())
        ],
        "losses": [loss.model_dump(mode="json") for loss in figures.losses],
    }


def _shifts(hook: SluiceHook) -> list[dict[str, Any]]:
    """Return when each shift begins next, and its shares; the next shift first."""
    try:
        shifts = hook.site().shifts
    except SiteError:  # `shares_of` says so
        return []
    now = datetime.now(UTC)
    begins = {name: shift.next(now).timestamp() for name, shift in shifts.items()}
    return [
        {
            "name": name,
            "begins": begins[name],
            "shares": {tenant: str(numbers) for tenant, numbers in shifts[name].shares.items()},
        }
        for name in sorted(begins, key=begins.__getitem__)
    ]


def _layer(entry: LayerEntry) -> dict[str, Any]:
    """Return what one layer sets for a tenant, also if a higher layer sets it, too."""
    settings = {**entry.model_dump(include=set(Numbers.model_fields)), "place": entry.to}
    sets = [f"{name} {value}" for name, value in settings.items() if value is not None]
    burst = [f"{entry.extra} more at {entry.extra_to}"] if entry.extra else []
    return {
        "tenant": entry.tenant,
        "layer": entry.layer.name.lower(),
        "sets": ", ".join([*sets, *burst]),
        **entry.model_dump(mode="json", include={"owner", "at", "until"}),
    }


def _slot(line: SlotLine) -> dict[str, Any]:
    return line.model_dump(mode="json", include={"id", "host", "tenant", "incarnation", "state"})


def change_of(view: View, line: ChangeLine) -> dict[str, Any]:
    """Return a change with all steps of its kind, in order, and its moves.

    A start or a stop of a tier has neither.
    """
    shown = line.model_dump(mode="json")
    record = view.changes.get(ChangeId(line.id))
    if record is None:
        return shown | {"all_steps": [], "moves": []}
    moves = [
        {"tier": move.tier, "driver": move.after.driver, "workers": list(move.after.slots)}
        for move in record.plan.moves
    ]
    return shown | {"all_steps": list(KINDS[record.spec.kind].steps), "moves": moves}
