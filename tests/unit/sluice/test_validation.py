"""What is wrong with tiers is told of all of them, sound code is noted, and where there is no Spark a person is told what to do."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import sluice
from sluice import releases
from sluice.api import declarations
from sluice.api.declarations import DeclarationError, Pipeline, State, Stream, Tier
from sluice.checks import operators, state_plans
from sluice.commands import validation
from sluice.commands.validation import UncheckedError, Validation
from sluice.driver.spark import jvm
from sluice.sinks.table import Latest
from sluice_ops.model.tier import Kind

MODULE = "hits"
A, B, C = Stream("a"), Stream("b", "id string"), Stream("c", "id string")


def same(records):
    return records


def tier(name, inputs, *outputs, **more):
    return Tier(name, Kind.PROCESSING, inputs, same, outputs=outputs, **more)


HOLDING = tier("holding", (C,), sink=Latest("newest", {"id": "text"}, key=("id",)), state=State(60))
PIPELINE = Pipeline((tier("first", (A,), B), tier("second", (B,), C), HOLDING))


@pytest.fixture(autouse=True)
def spark(monkeypatch):
    """Play Spark: what it says of each tier, and how often it was started."""
    played = Played()

    def check_tier(_session, tier):
        if (found := played.wrong.get(tier.name)) is not None:
            raise found

    def opened(_shared):
        played.sessions += 1
        return nullcontext()

    monkeypatch.setattr(operators, "check_tier", check_tier)
    monkeypatch.setattr(state_plans, "state_operators", lambda _session, tier: (f"all of {tier.name}",))
    monkeypatch.setattr(validation, "_session", opened)
    return played


class Played:
    def __init__(self):
        self.wrong: dict[str, Exception] = {}
        self.sessions = 0


def test_every_tier_that_is_wrong_is_told_and_nothing_is_noted(spark, tmp_path):
    spark.wrong = {"first": DeclarationError('tier "first": Sort cannot run'), "holding": KeyError("nothing")}
    found = validation.validate(PIPELINE, tmp_path, MODULE)
    assert set(found.errors) == {"first", "holding"}
    first, holding = found.sentences()
    assert first == 'tier "first": Sort cannot run'
    assert holding.startswith(f'tier "holding": the transform fails at {__file__}:')
    assert holding.endswith("KeyError: 'nothing'")
    assert validation.cached(tmp_path, MODULE) is None


def test_columns_that_cannot_be_read_are_a_tiers_fault(tmp_path):
    broken = Pipeline((tier("first", (A,), Stream("b", "id")),))
    found = validation.validate(broken, tmp_path, MODULE)
    assert found.sentences() == [
        "tier \"first\": columns 'id': 'id' is not a name and a type; write columns like `id string, at bigint`"
    ]


def test_sound_code_is_noted_with_what_it_holds_until_it_or_sluice_changes(tmp_path, monkeypatch):
    found = validation.validate(PIPELINE, tmp_path, MODULE)
    assert found == Validation({}, {"holding": ("all of holding",)})
    assert validation.cached(tmp_path, MODULE) == found
    assert validation.cached(tmp_path, "hits.feed") is None
    digest = releases.digest
    for changed in (releases.source(MODULE), Path(sluice.__file__).parent):
        monkeypatch.setattr(
            releases, "digest", lambda code, changed=changed: digest(code) + "!" * (code == changed)
        )
        assert validation.cached(tmp_path, MODULE) is None
    monkeypatch.setattr(releases, "digest", digest)
    (tmp_path / "validated.json").write_text("{")
    assert validation.cached(tmp_path, MODULE) is None


def test_a_check_makes_no_home(tmp_path):
    validation.validate(PIPELINE, tmp_path / "home", MODULE)
    assert not (tmp_path / "home").exists()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    (tmp_path / "site.yaml").write_text(f"pipeline: {MODULE}\nhosts: []\n")
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    return tmp_path


def test_a_start_with_code_that_is_known_starts_no_spark(spark, home, monkeypatch):
    assert (validation.main(), spark.sessions) == (0, 1)
    monkeypatch.setattr(declarations, "load", lambda _module: pytest.fail("it is not even imported"))
    assert (validation.main(), spark.sessions) == (0, 1), "it is noted"
    (home / "validated.json").unlink()
    releases.store(home, MODULE, 1.0, dict)
    assert (validation.main(), spark.sessions) == (0, 1), "it is a release"


@pytest.mark.usefixtures("home")
def test_a_start_with_a_wrong_tier_names_it(spark, capsys):
    spark.wrong = {"entry": DeclarationError('tier "entry": Sort cannot run')}
    assert validation.main() == 1
    assert (
        capsys.readouterr().err
        == 'tier "entry": Sort cannot run\nnothing was published; correct these tiers, then start again\n'
    )


def test_a_module_that_is_not_there_is_named(home, capsys):
    (home / "site.yaml").write_text("pipeline: nowhere.hits\nhosts: []\n")
    assert validation.main() == 1
    assert "nowhere.hits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("java", "why"),
    [
        (None, "No such file or directory"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho Error: no main class >&2\nexit 1\n", "Error: no main class"),
    ],
)
def test_where_no_spark_starts_a_person_is_told_what_to_do(tmp_path, monkeypatch, java, why):
    program = tmp_path / "java"
    if java is not None:
        program.write_text(java)
        program.chmod(0o755)
    monkeypatch.undo()  # what plays Spark
    monkeypatch.setattr(jvm, "JAVA", program)
    with pytest.raises(
        UncheckedError, match=rf"Spark does not start here \(.*{why}.*\); install Java .* `make install`"
    ):
        validation.validate(PIPELINE, tmp_path, MODULE)


def test_without_its_packages_likewise(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "sluice.driver.spark.jvm", None)
    with pytest.raises(UncheckedError, match=r"install Java .* `make install`"):
        validation.validate(PIPELINE, tmp_path, MODULE)
