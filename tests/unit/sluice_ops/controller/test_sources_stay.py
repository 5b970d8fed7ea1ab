"""A change that empties a host says which sources stay there."""

import pytest
from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.change import Step
from sluice_ops.model.source import SourceFigures, SourceKind, SourceRecord


@pytest.fixture
def world():
    return World().bring_up()


def source(world, name, kind, host, *, live=True):
    record = SourceRecord(
        name=name, stream="raw", kind=kind, where="x", host=host, pid=1, identity="a", since=1.0
    )
    world.channel.put(paths.source(record.id), record)
    if live:
        world.channel.put(paths.source_live(record.id), SourceFigures(identity="a", at=1.0))


def preflight(world, kind):
    runbook = world.begin("c1", kind=kind, host="h2")
    world.until(lambda: runbook.ended)
    return runbook.results[Step.PREFLIGHT].sentence


def test_a_drain_names_the_sources_that_stay_on_the_host(world):
    source(world, "web", SourceKind.HTTP, "h2")
    source(world, "app", SourceKind.FILES, "h2")
    source(world, "far", SourceKind.HTTP, "h1")
    source(world, "lost", SourceKind.HTTP, "h2", live=False)
    sentence = preflight(world, "drain")
    assert (
        "source web of stream raw stays on h2: start it on another machine under the same name, "
        "which takes it over" in sentence
    )
    assert "source app of stream raw stays on h2, where its files are" in sentence
    assert "far" not in sentence
    assert "lost" not in sentence


def test_a_cordon_says_nothing_of_sources(world):
    source(world, "web", SourceKind.HTTP, "h2")
    assert "source" not in preflight(world, "cordon")
