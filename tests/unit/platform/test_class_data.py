"""When the platform has class data made, and what becomes of what it kept before."""

import threading

import pytest

from ops import spark
from ops.platform import sluice
from ops.platform.layout import Layout, PlatformError


def test_it_is_made_once_and_what_was_kept_for_another_spark_goes(where: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [spark.cache_of_tiers(where.home), spark.cache_of_workers(where.home)]
    kept = [where.archives / "kafka.aot", *wanted]
    runs = []

    def made(command: list[str], *_: object) -> None:
        runs.append(command[-1])
        for cache in wanted:
            cache.touch()

    monkeypatch.setattr(sluice, "run_to_end", made)
    where.archives.mkdir(parents=True, exist_ok=True)
    for name in ("kafka.aot", "tier.aot", "tier.made-of", "tier-0123456789.aot", "worker-0123456789.aot"):
        (where.archives / name).touch()
    step = sluice.class_data(where)
    for _ in range(2):
        step.act(threading.Event())
    assert runs == ["pipeline.classdata"]
    assert sorted(where.archives.iterdir()) == sorted(kept)


def test_without_it_the_platform_starts_all_the_same_and_nothing_is_removed(where: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        message = "exit code 1\nand much more"
        raise PlatformError(message)

    monkeypatch.setattr(sluice, "run_to_end", refused)
    where.archives.mkdir(parents=True, exist_ok=True)
    old = where.archives / "tier-0123456789.aot"
    old.touch()
    assert sluice.class_data(where).act(threading.Event()) == "not kept, tiers start without it, only slower: exit code 1"
    assert list(where.archives.iterdir()) == [old]
