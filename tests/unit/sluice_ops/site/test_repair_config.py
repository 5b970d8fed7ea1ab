"""The key `repair`: on, off, its window and its limit, and the key of former versions."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.repair import REPAIR_SECONDS
from sluice_ops.site.repair_config import RepairConfig, WindowConfig
from sluice_ops.site.site_file import Site, SiteError, load


def site_of(folder: Path, keys: str) -> Site:
    path = folder / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\n{keys}\n")
    return load(path)


@pytest.mark.parametrize(
    ("keys", "repair"),
    [
        ("", None),
        ("repair: off", None),
        ("repair: on", RepairConfig()),
        ("repair: {after: 60, changes_per_hour: 2}", RepairConfig(after=60, changes_per_hour=2)),
        ("repair_seconds: 1800", RepairConfig(after=1800)),
        ("repair_seconds: null", None),
    ],
)
def test_repair_is_off_on_or_has_its_own_numbers(
    keys: str, repair: RepairConfig | None, tmp_path: Path
) -> None:
    assert site_of(tmp_path, keys).repair == repair
    assert RepairConfig().after == REPAIR_SECONDS


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("repair: 1800", "repair: 1800 is neither on nor off: write on, off, or keys such as {after: 1800}"),
        ("repair: {after: 5}", "repair.after: Input should be greater than or equal to 30"),
        ("repair: {changes_per_hour: 0}", "repair.changes_per_hour: "),
        ("repair: {window: {schedule: 0 1 * * *}}", "repair.window.hours: Field required"),
        (
            "repair: {window: {schedule: nightly, hours: 2}}",
            "repair.window.schedule: 'nightly' is",
        ),
        ("repair: on\nrepair_seconds: 60", "repair_seconds: unknown key; did you mean re"),
    ],
)
def test_an_unusable_repair_is_refused_with_the_key(keys: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SiteError) as refused:
        site_of(tmp_path, keys)
    assert reason in str(refused.value)


@pytest.mark.parametrize("folder", [".", "ops/sluice_ops/template", "deploy/compose"])
def test_the_site_files_of_one_machine_repair_by_themselves(folder: str) -> None:
    assert load(Path(__file__).resolve().parents[4] / folder / "site.yaml").repair == RepairConfig()


NIGHT = WindowConfig(schedule="0 23 * * mon-fri", hours=7, timezone="Europe/Bucharest")


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-11-24T20:59", "2026-11-24T21:00"),
        ("2026-11-24T21:01", None),
        ("2026-11-25T03:59", None),
        ("2026-11-25T04:01", "2026-11-25T21:00"),
        ("2026-11-28T22:00", "2026-11-30T21:00"),
        ("2026-07-01T19:59", "2026-07-01T20:00"),
    ],
)
def test_a_window_opens_at_its_hour_in_its_time_zone(now: str, opens: str | None) -> None:
    assert NIGHT.opens(seconds(now)) == (None if opens is None else seconds(opens))


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-12-24T21:01", "2026-12-28T21:00"),
        ("2026-12-23T23:00", None),
        ("2026-12-24T03:59", None),
        ("2026-12-25T02:00", "2026-12-28T21:00"),
    ],
)
def test_a_window_does_not_open_on_a_day_that_is_left_out(now: str, opens: str | None) -> None:
    frozen = NIGHT.model_copy(update={"not_on": (date(2026, 12, 24), date(2026, 12, 25))})
    assert frozen.opens(seconds(now)) == (None if opens is None else seconds(opens))


@given(st.floats(seconds("2026-01-01"), seconds("2028-01-01")))
def test_a_closed_window_opens_later_and_is_open_then(now: float) -> None:
    opens = NIGHT.opens(now)
    if opens is not None:
        assert opens > now
        assert NIGHT.opens(opens) is None
