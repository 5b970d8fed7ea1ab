"""Validation names every wrong tier, notes valid code, and without Spark names the next step."""

import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pyspark.errors.exceptions.base
import pytest

import sluice
from sluice import releases
from sluice.api import declarations
from sluice.api.declarations import DeclarationError, Pipeline, State, Stream, Tier
from sluice.checks import operators, state_plans
from sluice.commands import validation
from sluice.commands.validation import UncheckedError, Validation
from sluice.driver.spark import jvm
from sluice.releases import Loaded
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
def fake_spark(monkeypatch):
    """Replace Spark by a record of each tier's error and of the number of sessions."""
    fake = FakeSpark()

    def check_tier(_session, tier):
        if (error := fake.wrong.get(tier.name)) is not None:
            raise error

    def opened(_shared, _environment):
        fake.sessions += 1
        return nullcontext()

    monkeypatch.setattr(operators, "check_tier", check_tier)
    monkeypatch.setattr(state_plans, "state_operators", lambda _session, tier: (f"all of {tier.name}",))
    monkeypatch.setattr(validation, "_session", opened)
    return fake


class FakeSpark:
    def __init__(self):
        self.wrong: dict[str, Exception] = {}
        self.sessions = 0


def test_every_wrong_tier_is_named_and_nothing_is_noted(fake_spark, tmp_path):
    fake_spark.wrong = {
        "first": DeclarationError('tier "first": Sort cannot run'),
        "holding": KeyError("nothing"),
    }
    result = validation.validate(Loaded(PIPELINE), tmp_path, MODULE)
    assert set(result.errors) == {"first", "holding"}
    first, holding = result.sentences()
    assert first == 'tier "first": Sort cannot run'
    assert holding.startswith(f'tier "holding": the transform fails at {__file__}:')
    assert holding.endswith("KeyError: 'nothing'")
    assert validation.cached(tmp_path, MODULE) is None


def test_unreadable_columns_are_an_error_of_the_tier(tmp_path):
    broken = Pipeline((tier("first", (A,), Stream("b", "id")),))
    result = validation.validate(Loaded(broken), tmp_path, MODULE)
    assert result.sentences() == [
        (
            "tier \"first\": columns 'id': 'id' is not a name and a type; "
            "write columns like `id string, at bigint`"
        )
    ]


def test_valid_code_is_noted_with_its_state_until_code_changes(tmp_path, monkeypatch):
    result = validation.validate(Loaded(PIPELINE), tmp_path, MODULE)
    assert result == Validation({}, {"holding": ("all of holding",)})
    assert validation.cached(tmp_path, MODULE) == result
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


def test_a_check_creates_no_home(tmp_path):
    validation.validate(Loaded(PIPELINE), tmp_path / "home", MODULE)
    assert not (tmp_path / "home").exists()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    (tmp_path / "site.yaml").write_text(f"pipeline: {MODULE}\nhosts: []\n")
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    return tmp_path


def test_a_start_with_known_code_starts_no_spark(fake_spark, home, monkeypatch):
    assert (validation.main(), fake_spark.sessions) == (0, 1)
    monkeypatch.setattr(
        declarations, "load", lambda _module: pytest.fail("the pipeline must not be imported")
    )
    assert (validation.main(), fake_spark.sessions) == (0, 1), "the code is noted as valid"
    (home / "validated.json").unlink()
    releases.store(home, MODULE, 1.0, dict)
    assert (validation.main(), fake_spark.sessions) == (0, 1), "the code is a release"


@pytest.mark.usefixtures("home")
def test_a_start_with_a_wrong_tier_names_it(fake_spark, capsys):
    fake_spark.wrong = {"entry": DeclarationError('tier "entry": Sort cannot run')}
    assert validation.main() == 1
    assert (
        capsys.readouterr().err
        == 'tier "entry": Sort cannot run\nnothing was published; correct these tiers, then start again\n'
    )


def test_a_missing_module_is_named(home, capsys):
    (home / "site.yaml").write_text("pipeline: nowhere.hits\nhosts: []\n")
    assert validation.main() == 1
    assert "nowhere.hits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("java", "reason"),
    [
        (None, "No such file or directory"),
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho Error: no main class >&2\nexit 1\n", "Error: no main class"),
    ],
)
def test_a_failed_start_of_spark_is_reported_with_the_next_step(tmp_path, monkeypatch, java, reason):
    program = tmp_path / "java"
    if java is not None:
        program.write_text(java)
        program.chmod(0o755)
    monkeypatch.undo()  # removes the replacement of Spark
    monkeypatch.setattr(jvm, "JAVA", program)
    with pytest.raises(
        UncheckedError, match=rf"Spark does not start here \(.*{reason}.*\); install Sluice with"
    ):
        validation.validate(Loaded(PIPELINE), tmp_path, MODULE)


def test_missing_packages_of_spark_are_reported_with_the_next_step(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "sluice.driver.spark.jvm", None)
    with pytest.raises(UncheckedError, match=r"install Sluice with"):
        validation.validate(Loaded(PIPELINE), tmp_path, MODULE)


def test_each_logger_with_which_spark_repeats_errors_is_silenced():
    source = Path(pyspark.errors.exceptions.base.__file__).read_text()
    assert set(re.findall(r'getLogger\("(\w+)"\)', source)) == {*validation.REPEATING_LOGGERS}
