"""What `sluice status` says of sources."""

from simulation.memory import MemoryChannel

from sluice_ops.model import paths
from sluice_ops.model.source import FileFigures, SourceFigures, SourceKind, SourceRecord, Trouble
from sluice_ops.queries.sources import OLD_SECONDS, source_lines, source_troubles
from sluice_ops.snapshot.sources import source_figures
from sluice_ops.snapshot.view import read_view

RECORD = SourceRecord(
    name="app",
    stream="raw",
    kind=SourceKind.FILES,
    where="/var/log/app.log",
    host="h1",
    pid=7,
    identity="a",
    since=10.0,
)
FILE = FileFigures(path="/var/log/app.log", offset=30, unread=12)
FIGURES = SourceFigures(identity="a", at=100.0, rate=5.0, records=50, last=99.0, files=(FILE,))


def lines(record=RECORD, figures=FIGURES, now=105.0):
    channel = MemoryChannel()
    channel.put(paths.source(record.id), record)
    if figures is not None:
        channel.put(paths.source_live(record.id), figures)
    view = read_view(channel)
    return source_lines(view, source_figures(channel, view), now)


def test_a_running_source_has_its_figures():
    (line,) = shown = lines()
    assert (line.state, line.sentence, line.rate, line.records, line.last) == ("running", "", 5.0, 50, 99.0)
    assert line.files == (FILE,)
    assert source_troubles(shown) == []


def test_an_old_rate_is_not_shown():
    (line,) = lines(now=100.0 + OLD_SECONDS + 1)
    assert (line.rate, line.records, line.at) == (None, 50, 100.0)


def test_figures_of_an_earlier_process_are_not_shown():
    (line,) = lines(figures=FIGURES.model_copy(update={"identity": "earlier"}))
    assert (line.state, line.records) == ("running", None)


def test_a_lost_source_says_why_and_what_to_do():
    (line,) = shown = lines(RECORD.model_copy(update={"ended": "Kafka refuses the source app"}), None)
    assert line.state == "lost"
    assert source_troubles(shown) == [
        (
            "Source app of raw on h1 is lost: Kafka refuses the source app. "
            "Start it again, or forget it: `sluice ingest forget`"
        )
    ]


def test_a_source_that_stands_still_says_since_when():
    trouble = Trouble(since=65.0, sentence="Kafka does not answer")
    (line,) = lines(RECORD.model_copy(update={"trouble": trouble}))
    assert (line.state, line.sentence) == (
        "stands still",
        "has written nothing for 40 s, and records wait: Kafka does not answer",
    )
