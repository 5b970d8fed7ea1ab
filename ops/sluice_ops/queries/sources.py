"""The sources of records from outside, as `sluice status` and the page show them."""

from collections.abc import Mapping, Sequence

from sluice_ops.model.source import EVERY_SECONDS, SourceFigures
from sluice_ops.queries.lines import SourceLine
from sluice_ops.snapshot.view import SourceView, View

OLD_SECONDS = 3 * EVERY_SECONDS
"""A rate that is older is not shown."""


def source_lines(view: View, figures: Mapping[str, SourceFigures], now: float) -> list[SourceLine]:
    """Describe every source that runs or should run, by name."""
    return [_line(source, figures.get(name), now) for name, source in sorted(view.sources.items())]


def source_troubles(lines: Sequence[SourceLine]) -> list[str]:
    """Return a line for each source that is lost or stands still."""
    return [
        f"Source {line.name} of {line.stream} on {line.host} {line.sentence}"
        for line in lines
        if line.sentence
    ]


def _line(source: SourceView, figures: SourceFigures | None, now: float) -> SourceLine:
    record = source.record
    state, sentence = "running", ""
    if not source.live:
        reason = record.ended or "it left no message"
        state, sentence = "lost", f"is lost: {reason}. Start it again, or forget it: `sluice ingest forget`"
    elif record.trouble is not None:
        reason = record.trouble.sentence
        state = "stands still"
        sentence = f"has written nothing for {now - record.trouble.since:.0f} s, and records wait: {reason}"
    if figures is not None and figures.identity != record.identity:
        figures = None
    return SourceLine(
        **record.model_dump(include={"name", "stream", "kind", "host", "pid", "where", "since", "failures"}),
        state=state,
        sentence=sentence,
        at=None if figures is None else figures.at,
        rate=None if figures is None or now - figures.at > OLD_SECONDS else figures.rate,
        records=None if figures is None else figures.records,
        last=None if figures is None else figures.last,
        waiting_bytes=None if figures is None else figures.waiting_bytes,
        refused=None if figures is None else figures.refused,
        throttled=None if figures is None else figures.throttled,
        files=() if figures is None else figures.files,
    )
