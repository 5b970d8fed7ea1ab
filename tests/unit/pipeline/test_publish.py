"""What publishing says of tiers, with which exit code, and that it publishes nothing when one of them is wrong."""

import json

import pytest

from ops import endpoints
from pipeline import publish, releases, topics, validation
from pipeline.validation import UncheckedError, Validation

MODULE = "pipeline.hits"
WRONG = Validation({"enrich": "Aggregate cannot run", "outbound": "Sort does not keep the order"}, {})
SENTENCES = 'tier "enrich": Aggregate cannot run\ntier "outbound": Sort does not keep the order\n'


class ReachedError(Exception):
    """Publishing has come as far as what it writes first."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    site = tmp_path / "site.yaml"
    site.write_text(f"pipeline: {MODULE}\nhosts: []\n")
    airflow = {"url": "http://127.0.0.1:1", "user": "admin", "password": "none"}
    found = {"kafka": "127.0.0.1:1", "zookeeper": "127.0.0.1:1", "postgres": "postgresql://nobody@127.0.0.1:1/none", "airflow": airflow}
    (tmp_path / "endpoints.json").write_text(json.dumps({**found, "spark": "spark://127.0.0.1:1", "home": str(tmp_path)}))
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setenv("SLUICE_SITE", str(site))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)

    def reached(*_words):
        raise ReachedError

    monkeypatch.setattr(topics, "create", reached)
    return tmp_path


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
    assert capsys.readouterr() == ("".join(f'tier "{name}": valid\n' for name in ("entry", "enrich", "counts", "outbound")), "")


def test_a_check_says_what_is_wrong_with_every_tier_that_is(found, capsys):
    found(WRONG)
    assert publish.main(["--check"]) == 1
    assert capsys.readouterr() == ('tier "entry": valid\ntier "counts": valid\n', SENTENCES)


def test_nothing_is_published_when_a_tier_is_wrong_and_that_is_said(found, home, capsys):
    found(WRONG)
    assert publish.main([]) == 1
    assert capsys.readouterr().err == f"{SENTENCES}nothing is published: mend what is named, and publish again\n"
    assert not releases.known(home)


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
        noted.setattr(validation, "noted", lambda _home, _module: Validation({}, {}))
        with pytest.raises(ReachedError):
            publish.main([])
    releases.keep(home, MODULE, 1.0, dict)
    with pytest.raises(ReachedError):
        publish.main([])


@pytest.mark.usefixtures("found")
def test_how_tiers_are_declared_is_checked_without_spark(capsys):
    assert publish.main(["--check", "--declared"]) == 0
    assert "entry, enrich, counts, outbound: declared soundly" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        publish.main(["--declared"])


def test_the_home_is_the_one_that_all_hosts_share(home, monkeypatch):
    assert validation.home() == home
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(home / "nothing.json"))
    assert validation.home() == endpoints.home()
