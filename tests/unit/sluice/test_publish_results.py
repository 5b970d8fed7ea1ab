"""What `sluice publish` prints of a release."""

from dataclasses import replace

from sluice.commands.publish_results import BuiltEnvironment, Checked, Published

PUBLISHED = Published(
    pipeline="shop",
    tiers=["orders", "sales"],
    tables=["sales"],
    new_streams=[],
    release="r2-00000000",
    is_new=True,
    other_releases_run_in=["sales"],
    stopped=["old"],
    notes=[],
    unmatched_places=[],
)


def test_the_lines_name_the_release_and_what_does_not_run_it() -> None:
    assert [*PUBLISHED.lines()] == [
        "shop: tiers orders, sales; tables sales; new streams: none",
        "release r2-00000000 is new",
        "other releases run in sales; hand a tier over to this release with `sluice upgrade TIER`",
        "stopped, because no longer declared: old; streams, tables and checkpoints remain",
    ]


def test_unchanged_code_is_said_to_be_an_earlier_release() -> None:
    same = replace(PUBLISHED, is_new=False, other_releases_run_in=[], stopped=[])
    assert [*same.lines()][1:] == ["release r2-00000000: the code is unchanged"]


def test_publishing_and_its_check_name_packages_and_jars() -> None:
    built = BuiltEnvironment({"haversine": "2.9.0"}, ["org.example:shout:1.0"], 1_100_000, 4.2)
    line = "environment: haversine 2.9.0, org.example:shout:1.0; 1.1 MB, built in 4.2 s"
    assert line in replace(PUBLISHED, environment=built).lines()
    before = replace(built, seconds=None)
    checked = Checked("shop", ["orders"], {}, declared_only=False, notes=[], environment=before)
    assert [*checked.lines()] == ['tier "orders": valid', line.replace("built in 4.2 s", "built before")]
