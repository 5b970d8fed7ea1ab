"""`sluice top` shows what `sluice status` knows, fits the terminal, and keeps old content."""

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, ConsoleDimensions
from simulation.memory import MemoryChannel
from typer.testing import CliRunner

from sluice_ops.channel import ChannelAwayError
from sluice_ops.cli import top
from sluice_ops.cli.top import ALERT_COLUMNS, HOST_COLUMNS, TIER_COLUMNS, Screen, render
from sluice_ops.main import app
from sluice_ops.model.assignment import UnitKind
from sluice_ops.model.exit_codes import WRONG_USAGE
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import TierProgress
from sluice_ops.queries import describe
from sluice_ops.queries.alerts import AlertLine
from sluice_ops.queries.figures import Figures
from tests.unit.sluice_ops.cli.test_describe import ENRICH, host, unit, view

NOW = 1_800_000_000.0


def shown(screen: Screen, away: str | None = None, height: int = 40, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False, markup=False)
    console.print(render(screen, away, ConsoleDimensions(width, height), NOW))
    return console.file.getvalue()


def full(hosts: int = 2) -> Screen:
    progress = TierProgress(
        tier=ENRICH,
        incarnation=Incarnation(2),
        at=NOW,
        rate_in=1234.4,
        rate_out=1200.0,
        lag=56789,
        latency_ms=12.0,
        details={"latency_p99_ms": 345.0},
    )
    views = [host(f"h{number}") for number in range(3, hosts + 1)]
    now = view(
        host("h1", unit(UnitKind.DRIVER)), host("h2", unit(UnitKind.SLOT), live=False), *views, following=3
    )
    return Screen(
        at=NOW,
        controller="Controller c1: all is well",
        steps=(
            {
                "what": "drain h2",
                "step": "prepare",
                "since": time.time() - 5,
                "sentence": "enrich warms up",
                "progress": {"seconds_left": 12.4, "verdict": "on time"},
            },
        ),
        tiers=describe.tiers(now, Figures({TierName("enrich"): progress})),
        hosts=describe.hosts(now),
        alerts=[
            AlertLine(
                key="host-lost:h2",
                severity="critical",
                state="told",
                since=time.time() - 60,
                happened="h2 is lost",
                did="",
                do="",
                link="",
                page="",
            )
        ],
        notes=["Disk: 7 MiB are free."],
    )


def test_the_view_shows_changes_tiers_alerts_hosts_and_notes() -> None:
    text = shown(full())
    assert "Controller c1: all is well" in text
    assert "In progress: drain h2, step prepare for 5 s, about 12 s left, on time: enrich warms up" in text
    (tier,) = [line for line in text.splitlines() if line.startswith("enrich")]
    assert tier.split("  ")[0] == "enrich"
    for figure in ("1,234", "1,200", "56,789", "12 ms", "345 ms", "1 lost", "h1", "2 → 3"):
        assert figure in tier, figure
    assert "host-lost:h2" in text
    assert "h2 is lost" in text
    assert "Disk: 7 MiB are free." in text


def test_without_a_change_the_view_says_so() -> None:
    assert "No change is in progress." in shown(Screen(at=NOW))


@pytest.mark.parametrize("height", [24, 40])
def test_many_hosts_fit_the_terminal_and_those_in_trouble_come_first(height: int) -> None:
    text = shown(full(hosts=300), height=height)
    lines = text.splitlines()
    assert len(lines) <= height
    hosts = [
        line.split()[0] for line in lines[[line.startswith("host ") for line in lines].index(True) + 2 :]
    ]
    assert hosts[0] == "h2", "it is lost"
    count = sum(name.startswith("h") and name[1:].isdigit() for name in hosts)
    assert f"… and {300 - count} more hosts: sluice hosts" in text


def test_a_narrow_terminal_cuts_lines_and_does_not_wrap_them() -> None:
    assert len(shown(full(), width=60).splitlines()) == len(shown(full()).splitlines())


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_columns_that_do_not_fit_are_left_out_and_no_figure_is_cut(width: int) -> None:
    lines = shown(full(), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    (columns,) = [line.split() for line in lines if line.startswith("tier ")]
    (tier,) = [line for line in lines if line.startswith("enrich")]
    assert {"tier", "state", "in/s", "lag"} <= {*columns}
    assert "…" not in tier
    figures = {"out/s": "1,200", "p50": "12 ms", "p99": "345 ms", "workers": "1 lost", "inc.": "2 → 3"}
    assert [name for name, figure in figures.items() if (figure in tier) is not (name in columns)] == []
    (alert,) = [line for line in lines if line.startswith("host-lost:h2")]
    assert "h2 is lost" in alert


@pytest.mark.parametrize("width", [34, 40, 60])
def test_a_long_name_is_cut_before_a_tiers_state_or_lag(width: int) -> None:
    screen = full()
    (tier,) = screen.tiers
    long = tier.model_copy(update={"name": "orders-of-every-shop-by-hour", "held_for": "shipments"})
    lines = shown(replace(screen, tiers=[long]), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    (line,) = [line for line in lines if line.startswith("orders-")]
    assert f" {tier.state}" in line
    assert line.split()[-1] == "56,789" or "56,789 " in line
    assert "…" in line


@pytest.mark.parametrize("height", [6, 9, 12, 24, 40])
def test_many_tiers_fit_the_terminal_and_those_in_trouble_come_first(height: int) -> None:
    screen = full(hosts=300)
    (tier,) = screen.tiers
    well = tier.model_copy(update={"state": "running", "lag": 0})
    tiers = [*(well.model_copy(update={"name": f"well-{number}"}) for number in range(28))]
    tiers += [well.model_copy(update={"name": "lags", "lag": 9}), tier.model_copy(update={"name": "fails"})]
    lines = shown(replace(screen, tiers=tiers, alerts=screen.alerts * 9), height=height).splitlines()
    assert len(lines) <= height
    names = [line.split()[0] for line in lines if line.startswith(("well-", "lags ", "fails "))]
    if len(names) < len(tiers):
        assert f"… and {len(tiers) - len(names)} more tiers: sluice tiers" in lines
        assert names[:2] == ["fails", "lags"][: len(names)]
    alerts = sum(line.startswith("host-lost:h2") for line in lines)
    assert f"… and {9 - alerts} more alerts: sluice alert" in lines


def test_a_wide_terminal_shows_every_column_and_80_characters_most() -> None:
    wide, usual = (shown(full(), width=width) for width in (140, 80))
    assert all(name in wide for name in (*TIER_COLUMNS, *ALERT_COLUMNS, *HOST_COLUMNS))
    (columns,) = [line.split() for line in usual.splitlines() if line.startswith("tier ")]
    assert columns == ["tier", "state", "in/s", "out/s", "lag", "p99", "workers", "driver", "inc."]


def test_a_long_reason_is_cut_at_its_end_and_the_alerts_name_stays() -> None:
    screen = full()
    long = screen.alerts[0].model_copy(update={"happened": "its agent does not answer " * 20})
    (line,) = [
        line
        for line in shown(replace(screen, alerts=[long]), width=80).splitlines()
        if line.startswith("host-lost:h2")
    ]
    assert line.split()[:2] == ["host-lost:h2", "critical"]
    assert (len(line), line[-1]) == (80, "…")


def test_the_last_content_stays_while_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [full(), ChannelAwayError("ZooKeeper does not answer"), full()]

    def look(*_: object) -> Screen:
        answer = looks.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("sluice_ops.cli.top.look", look)
    monkeypatch.setattr("sluice_ops.cli.top.EVERY_SECONDS", 0.0)
    seen = top._looks(MemoryChannel(), None)
    (first, _), (second, away), (_, back) = next(seen), next(seen), next(seen)
    assert second is first
    text = render_at(second, away, NOW + 7)
    assert "The content is 7 s old: ZooKeeper does not answer" in text
    assert "enrich" in text
    assert back is None


def render_at(screen: Screen, away: str | None, now: float) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(render(screen, away, ConsoleDimensions(140, 40), now))
    return console.file.getvalue()


def test_without_a_terminal_the_command_names_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["top"])
    assert done.exit_code == WRONG_USAGE
    assert done.stderr == "sluice top needs a terminal, and stdout is none. For one answer: sluice status\n"
