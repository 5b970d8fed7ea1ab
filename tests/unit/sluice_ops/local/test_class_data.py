"""How the platform has class data made, and what becomes of what it kept before."""

import pytest

from sluice_ops.doctor.finding import Verdict
from sluice_ops.local import doctor
from sluice_ops.local.layout import Layout
from sluice_ops.local.services import sluice
from sluice_ops.site import site_file, spark


def test_what_was_kept_for_another_spark_goes_and_what_fits_stays(where: Layout) -> None:
    kept = [
        where.archives / "kafka.aot",
        spark.cache_of_tiers(where.home),
        spark.cache_of_workers(where.home),
    ]
    where.archives.mkdir(parents=True, exist_ok=True)
    for cache in (
        *kept,
        *(
            where.archives / name
            for name in ("tier.aot", "tier-0123456789.aot", "worker-0123456789.aot.4711")
        ),
    ):
        cache.touch()
    sluice.clear_class_data(where)
    assert sorted(where.archives.iterdir()) == sorted(kept)


def test_it_comes_after_all_else_gives_way_and_is_done_once(where: Layout) -> None:
    (made,) = [
        service
        for service in sluice.services(where, site_file.load(where.site))
        if service.name == "class-data"
    ]
    assert made.needs == ("first-record",)
    assert made.program.once
    assert made.program.nice > 0


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("RUNNING", 0, (Verdict.OK, "is running")),
        ("EXITED", 0, (Verdict.OK, "is done")),
        ("EXITED", 3, (Verdict.NOTE, "failed (exit code 3)")),
        ("STOPPED", 0, (Verdict.BAD, "is stopped")),
    ],
)
def test_the_doctor_does_not_miss_what_has_ended_by_itself(
    where: Layout, monkeypatch: pytest.MonkeyPatch, state: str, code: int, said: tuple[Verdict, str]
) -> None:
    monkeypatch.setattr(
        doctor.Supervisor, "states", lambda _: {"class-data": {"statename": state, "exitstatus": code}}
    )
    (finding,) = [each for each in doctor.examine(where) if each.thing == "class-data"]
    assert (finding.verdict, finding.sentence) == said
