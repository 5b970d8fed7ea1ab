"""How the platform creates class data, and which older files it removes."""

import pytest

from sluice_ops.doctor.finding import Verdict
from sluice_ops.local import doctor
from sluice_ops.local.layout import Layout
from sluice_ops.local.services import sluice
from sluice_ops.site import site_file, spark


def test_class_data_of_another_spark_is_removed_and_current_stays(layout: Layout) -> None:
    current = [
        layout.archives / "kafka.aot",
        spark.cache_of_tiers(layout.home),
        spark.cache_of_workers(layout.home),
    ]
    layout.archives.mkdir(parents=True, exist_ok=True)
    for cache in (
        *current,
        *(
            layout.archives / name
            for name in ("tier.aot", "tier-0123456789.aot", "worker-0123456789.aot.4711")
        ),
    ):
        cache.touch()
    sluice.clear_class_data(layout)
    assert sorted(layout.archives.iterdir()) == sorted(current)


def test_class_data_runs_last_once_and_with_low_priority(layout: Layout) -> None:
    (class_data,) = [
        service
        for service in sluice.services(layout, site_file.load(layout.site))
        if service.name == "class-data"
    ]
    assert class_data.needs == ("first-record",)
    assert class_data.program.once
    assert class_data.program.nice > 0


def test_a_pipeline_without_a_feed_starts_class_data_after_its_tiers(layout: Layout) -> None:
    site = site_file.load(layout.site)
    other = site.model_copy(update={"pipeline": "json"})
    assert sluice.feed_modules(site) == ["hits.feed"]
    assert sluice.feed_modules(site.model_copy(update={"pipeline": "no_such_pipeline"})) == []
    services = {service.name: service for service in sluice.services(layout, other)}
    assert "feed" not in services
    assert services["class-data"].needs == ("tiers",)


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("RUNNING", 0, (Verdict.OK, "is running")),
        ("EXITED", 0, (Verdict.OK, "is done")),
        ("EXITED", 3, (Verdict.NOTE, "failed (exit code 3)")),
        ("STOPPED", 0, (Verdict.BAD, "is stopped")),
    ],
)
def test_the_doctor_reports_each_state_of_the_class_data_service(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, state: str, code: int, expected: tuple[Verdict, str]
) -> None:
    monkeypatch.setattr(
        doctor.Supervisor, "states", lambda _: {"class-data": {"statename": state, "exitstatus": code}}
    )
    (finding,) = [result for result in doctor.examine(layout) if result.thing == "class-data"]
    assert (finding.verdict, finding.sentence) == expected
