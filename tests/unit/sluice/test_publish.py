"""What publishing says of tiers, with which exit code, and that it publishes nothing when one of them is wrong."""

import json
from contextlib import nullcontext

import pytest
from simulation.memory import MemoryChannel

from sluice import releases
from sluice.commands import publish, validation
from sluice.commands.validation import UncheckedError, Validation
from sluice.kafka import topics
from sluice_ops.model import paths
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.site import endpoints

MODULE = "hits"
WRONG = Validation({"enrich": "Aggregate cannot run", "outbound": "Sort does not keep the order"}, {})
SENTENCES = 'tier "enrich": Aggregate cannot run\ntier "outbound": Sort does not keep the order\n'


class ReachedError(Exception):
    """Publishing has come as far as what it writes first."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    site = tmp_path / "site.yaml"
    site.write_text(f"pipeline: {MODULE}\nhosts: []\n")
    airflow = {"url": "http://127.0.0.1:1", "user": "admin", "password": "none"}
    found = {
        "kafka": "127.0.0.1:1",
        "zookeeper": "127.0.0.1:1",
        "postgres": "postgresql://nobody@127.0.0.1:1/none",
        "airflow": airflow,
    }
    (tmp_path / "endpoints.json").write_text(
        json.dumps({**found, "spark": "spark://127.0.0.1:1", "home": str(tmp_path)})
    )
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setenv("SLUICE_SITE", str(site))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)

    def reached(*_words):
        raise ReachedError

    monkeypatch.setattr(topics, "create", reached)
    return tmp_path


@pytest.fixture(autouse=True)
def channel(monkeypatch):
    """Play the control channel, in which nothing is published yet."""
    tree = MemoryChannel()
    monkeypatch.setattr(publish, "Channel", lambda *_words: nullcontext(tree))
    return tree


def running(channel, name, **wanted):
    """Have a tier published that is to run, or as the words say."""
    spec = TierSpec(
        name=name, kind=Kind.ENTRY, mode=Mode.BATCH, delivery=Delivery.EXACTLY_ONCE, inputs=("raw",)
    )
    channel.put(paths.tier(name), spec)
    if wanted:
        channel.put(paths.wanted(name), TierWanted(**wanted))


@pytest.fixture
def found(monkeypatch):
    """Say what a validation finds, or raises."""

    def say(what):
        def validate(_pipeline, _home, _module):
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(validation, "validate", validate)

    say(AssertionError("it is not asked"))
    return say


def test_a_check_says_of_each_tier_that_it_is_valid(found, capsys):
    found(Validation({}, {}))
    assert publish.main(["--check"]) == 0
    assert capsys.readouterr() == (
        "".join(f'tier "{name}": valid\n' for name in ("entry", "enrich", "counts", "outbound")),
        "",
    )


def test_a_check_says_what_is_wrong_with_every_tier_that_is(found, capsys):
    found(WRONG)
    assert publish.main(["--check"]) == 1
    assert capsys.readouterr() == ('tier "entry": valid\ntier "counts": valid\n', SENTENCES)


def test_nothing_is_published_when_a_tier_is_wrong_and_that_is_said(found, home, capsys):
    found(WRONG)
    assert publish.main([]) == 1
    assert (
        capsys.readouterr().err
        == f"{SENTENCES}nothing was published; correct these tiers, then run `python -m sluice.commands.publish` again\n"
    )
    assert not releases.all_stored(home)


@pytest.mark.parametrize("words", [["--check"], []])
def test_where_there_is_no_spark_it_says_what_to_do(found, capsys, words):
    found(UncheckedError("`make install` brings Java"))
    assert publish.main(words) == 1
    assert capsys.readouterr().err == "`make install` brings Java\n"


def test_new_code_that_is_sound_is_published(found):
    found(Validation({}, {}))
    with pytest.raises(ReachedError):
        publish.main([])


@pytest.mark.usefixtures("found")
def test_code_that_is_a_release_or_was_found_sound_is_not_tried_again(home, monkeypatch):
    with monkeypatch.context() as noted:
        noted.setattr(validation, "cached", lambda _home, _module: Validation({}, {}))
        with pytest.raises(ReachedError):
            publish.main([])
    releases.store(home, MODULE, 1.0, dict)
    with pytest.raises(ReachedError):
        publish.main([])


@pytest.mark.usefixtures("found")
def test_how_tiers_are_declared_is_checked_without_spark(capsys):
    assert publish.main(["--check", "--declared"]) == 0
    assert "hits: valid declarations: entry, enrich, counts, outbound" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        publish.main(["--declared"])


def test_the_home_is_the_one_that_all_hosts_share(home, monkeypatch):
    assert validation.home() == home
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(home / "nothing.json"))
    assert validation.home() == endpoints.home()


def test_publishing_that_would_stop_running_tiers_is_refused(found, home, channel, capsys):
    found(Validation({}, {}))
    running(channel, "orders")
    running(channel, "totals", running=True)
    running(channel, "retired", running=False)
    assert publish.main([]) == 1
    refusal = capsys.readouterr().err
    assert refusal.startswith("publishing hits would stop orders, totals: published before, and not declared")
    assert "--yes" in refusal
    assert not releases.all_stored(home), "nothing is published"


@pytest.mark.parametrize("published", [("orders",), ()])
def test_with_yes_or_nothing_to_stop_publishing_goes_on(found, channel, published):
    found(Validation({}, {}))
    running(channel, "entry")
    for name in published:
        running(channel, name)
    with pytest.raises(ReachedError):
        publish.main(["--yes"] if published else [])


def test_a_dry_run_of_publishing_names_all_that_would_change(found, home, channel, monkeypatch, capsys):
    found(Validation({}, {}))
    monkeypatch.setattr(
        topics,
        "missing",
        lambda _kafka, pipeline, _durability: sorted(topics.wanted(pipeline).keys() - {"raw", "hits"}),
    )
    running(channel, "entry")
    running(channel, "orders")
    assert publish.main(["--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dry run, nothing was written: hits"
    assert lines[1] == "new tiers: enrich, counts, outbound; published before: entry"
    assert lines[2].startswith("new streams: ")
    assert "enriched" in lines[2]
    assert "hits," not in lines[2]
    assert lines[3] == "release: a new one, the code has changed"
    assert lines[4] == "tiers that would stop: orders; publishing needs --yes"
    assert not releases.all_stored(home)
