"""The command `publish`: its messages and exit codes. It publishes nothing if one tier is wrong."""

import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from simulation.memory import MemoryChannel

from sluice import migrations, releases
from sluice.api.declarations import DeclarationError
from sluice.api.own_tables import OWN_INDEXES, OWN_TABLES
from sluice.commands import publish, tables, validation
from sluice.commands.validation import UncheckedError, Validation
from sluice.kafka import topics
from sluice_ops.model import paths
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.release import Release
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from sluice_ops.site import project

MODULE = "hits"
OF_HITS = {"campaign_counts", "delivered", "campaign_daily"}
WRONG = Validation({"enrich": "Aggregate cannot run", "outbound": "Sort does not keep the order"}, {})
SENTENCES = 'tier "enrich": Aggregate cannot run\ntier "outbound": Sort does not keep the order\n'


def test_a_light_realtime_tier_needs_a_thread_for_each_partition():
    spec = TierSpec(
        name="enrich",
        kind=Kind.PROCESSING,
        mode=Mode.REALTIME,
        delivery=Delivery.AT_LEAST_ONCE,
        inputs=("hits", "new"),
        driver=Quantum(cpu=0.5, memory=900, threads=6),
        light=True,
    )
    publish.refuse_too_few_threads([spec], {"hits": 2}, of_new=4)
    with pytest.raises(DeclarationError, match=r'"enrich": .* each of the 7 .* has 6; raise driver\.threads'):
        publish.refuse_too_few_threads([spec], {"hits": 3}, of_new=4)


class WritesError(Exception):
    """Publishing has reached its first write."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    site = tmp_path / "site.yaml"
    site.write_text(f"pipeline: {MODULE}\nhosts: []\n")
    airflow = {"url": "http://127.0.0.1:1", "user": "admin", "password": "none"}
    addresses = {
        "kafka": "127.0.0.1:1",
        "zookeeper": "127.0.0.1:1",
        "postgres": "postgresql://nobody@127.0.0.1:1/none",
        "airflow": airflow,
    }
    (tmp_path / "endpoints.json").write_text(
        json.dumps({**addresses, "spark": "spark://127.0.0.1:1", "home": str(tmp_path)})
    )
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.setenv("SLUICE_SITE", str(site))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)

    def write(*_words):
        raise WritesError

    monkeypatch.setattr(topics, "create", write)
    return tmp_path


@pytest.fixture(autouse=True)
def channel(monkeypatch):
    """A control channel in which nothing is published yet."""
    tree = MemoryChannel()
    monkeypatch.setattr(publish, "Channel", lambda *_words: nullcontext(tree))
    return tree


def publish_tier(channel, name, release=None, **wanted):
    """Put a published tier into the channel, with `wanted` as its requested state."""
    spec = TierSpec(
        name=name,
        kind=Kind.ENTRY,
        mode=Mode.BATCH,
        delivery=Delivery.EXACTLY_ONCE,
        inputs=("raw",),
        release=release,
    )
    channel.put(paths.tier(name), spec)
    if wanted:
        channel.put(paths.wanted(name), TierWanted(**wanted))


def set_tables(monkeypatch, present):
    """Put tables with these names into a database that answers which of the asked tables exist."""

    def execute(_query, parameters):
        (names,) = parameters
        return [(name,) for name in names if name in present]

    connection = nullcontext(SimpleNamespace(execute=execute))
    monkeypatch.setattr(tables.psycopg, "connect", lambda *_words, **_more: connection)


@pytest.fixture
def set_validation(monkeypatch):
    """Set the result, or the error, of the next validation."""

    def set_result(result):
        def validate(_pipeline, _home, _module):
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(validation, "validate", validate)

    set_result(AssertionError("no validation is expected"))
    return set_result


def test_a_check_reports_each_valid_tier(set_validation, capsys):
    set_validation(Validation({}, {}))
    assert publish.main(["--check"]) == 0
    assert capsys.readouterr() == (
        "".join(f'tier "{name}": valid\n' for name in ("entry", "enrich", "counts", "outbound")),
        "",
    )


def test_a_check_reports_the_error_of_each_wrong_tier(set_validation, capsys):
    set_validation(WRONG)
    assert publish.main(["--check"]) == 1
    assert capsys.readouterr() == ('tier "entry": valid\ntier "counts": valid\n', SENTENCES)


@pytest.mark.parametrize("declared", [True, False])
def test_a_check_as_json_has_the_valid_and_the_wrong_tiers(set_validation, capsys, declared):
    set_validation(WRONG)
    assert publish.main(["--check", "--json", *["--declared"] * declared]) == (0 if declared else 1)
    shown = json.loads(capsys.readouterr().out)
    assert shown["invalid"] == ({} if declared else dict(WRONG.errors))
    assert ("enrich" in shown["valid"], "entry" in shown["valid"]) == (declared, True)


def test_a_wrong_tier_prevents_publishing_with_a_message(set_validation, home, capsys):
    set_validation(WRONG)
    assert publish.main([]) == 1
    assert (
        capsys.readouterr().err
        == f"{SENTENCES}nothing was published; correct these tiers, then run `sluice publish` again\n"
    )
    assert not releases.all_stored(home)


@pytest.mark.parametrize("words", [["--check"], []])
def test_without_spark_the_next_step_is_named(set_validation, capsys, words):
    set_validation(UncheckedError("Java is missing"))
    assert publish.main(words) == 1
    assert capsys.readouterr().err == "Java is missing\n"


def test_valid_new_code_is_published(set_validation):
    set_validation(Validation({}, {}))
    with pytest.raises(WritesError):
        publish.main([])


@pytest.mark.usefixtures("set_validation")
def test_released_or_validated_code_is_not_validated_again(home, monkeypatch):
    with monkeypatch.context() as noted:
        noted.setattr(validation, "cached", lambda _home, _module: Validation({}, {}))
        with pytest.raises(WritesError):
            publish.main([])
    releases.store(home, MODULE, 1.0, dict)
    with pytest.raises(WritesError):
        publish.main([])


@pytest.mark.usefixtures("set_validation")
def test_declarations_are_checked_without_spark(capsys):
    assert publish.main(["--check", "--declared"]) == 0
    assert "hits: valid declarations: entry, enrich, counts, outbound" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        publish.main(["--declared"])


def test_the_home_is_the_shared_home_of_all_hosts(home, monkeypatch):
    assert validation.home() == home
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(home / "nothing.json"))
    assert validation.home() == project.home()


def test_publishing_that_would_stop_running_tiers_is_refused(set_validation, home, channel, capsys):
    set_validation(Validation({}, {}))
    publish_tier(channel, "orders")
    publish_tier(channel, "totals", running=True)
    publish_tier(channel, "retired", running=False)
    assert publish.main([]) == 1
    refusal = capsys.readouterr().err
    assert refusal.startswith("publishing hits would stop orders, totals: published before, and not declared")
    assert "--yes" in refusal
    assert not releases.all_stored(home), "a refused publish must store no release"


def publish_entry_from(channel, module):
    """Put the tier `entry`, published from a module, into the channel."""
    release = Release(
        name="r1-00000000", module=module, digest="00000000" + 56 * "0", published_at=1.0, tiers={}
    )
    channel.put(paths.release(release.name), release)
    publish_tier(channel, "entry", release=release.name, running=False)


def test_publishing_over_another_pipeline_is_refused(set_validation, home, channel, capsys):
    set_validation(Validation({}, {}))
    publish_entry_from(channel, "shop")
    assert publish.main([]) == 1
    refusal = capsys.readouterr().err
    assert refusal.startswith(
        "publishing hits would replace entry (published from shop). Nothing was published"
    )
    assert "SLUICE_SITE" in refusal
    assert "--yes" in refusal
    assert not releases.all_stored(home), "a refused publish must store no release"


@pytest.mark.parametrize(("module", "words"), [("shop", ["--yes"]), (MODULE, [])])
def test_publishing_replaces_its_own_tiers_or_any_with_yes(set_validation, channel, module, words):
    set_validation(Validation({}, {}))
    publish_entry_from(channel, module)
    with pytest.raises(WritesError):
        publish.main(words)


def test_a_dry_run_names_the_tiers_of_another_pipeline(set_validation, channel, monkeypatch, capsys):
    set_validation(Validation({}, {}))
    monkeypatch.setattr(topics, "missing", lambda _kafka, _pipeline, _durability: [])
    set_tables(monkeypatch, OF_HITS | OWN_TABLES.keys())
    publish_entry_from(channel, "shop")
    assert publish.main(["--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "would be replaced: entry (published from shop); publishing needs --yes" in shown
    assert "new tables" not in shown, "all tables exist"


@pytest.mark.parametrize("published", [("orders",), ()])
def test_publishing_continues_with_yes_or_if_no_tier_would_stop(set_validation, channel, published):
    set_validation(Validation({}, {}))
    publish_tier(channel, "entry")
    for name in published:
        publish_tier(channel, name)
    with pytest.raises(WritesError):
        publish.main(["--yes"] if published else [])


def test_a_dry_run_of_publishing_names_all_that_would_change(
    set_validation, home, channel, monkeypatch, capsys
):
    set_validation(Validation({}, {}))
    monkeypatch.setattr(
        topics,
        "missing",
        lambda _kafka, pipeline, _durability: sorted(topics.wanted(pipeline).keys() - {"raw", "hits"}),
    )
    set_tables(monkeypatch, (OF_HITS | OWN_TABLES.keys()) - {"delivered", "ledger"})
    publish_tier(channel, "entry")
    publish_tier(channel, "orders")
    assert publish.main(["--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dry run, nothing was written: hits"
    assert lines[1] == "new tiers: enrich, counts, outbound; published before: entry"
    assert lines[2].startswith("new streams: ")
    assert "enriched" in lines[2]
    assert "hits," not in lines[2]
    assert lines[3] == "new tables: delivered, ledger"
    assert lines[4] == "release: a new one, the code has changed"
    assert lines[5] == "tiers that would stop: orders; publishing needs --yes"
    assert publish.main(["--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["new_tiers"] == ["enrich", "counts", "outbound"]
    assert (shown["release"], shown["would_stop"]) == (None, ["orders"])
    assert not releases.all_stored(home)


def test_a_dry_run_without_postgresql_names_the_next_step(set_validation, monkeypatch, capsys):
    set_validation(Validation({}, {}))
    monkeypatch.setattr(topics, "missing", lambda _kafka, _pipeline, _durability: [])
    assert publish.main(["--dry-run"]) == 3
    error = capsys.readouterr().err
    assert error.startswith("listing the tables in PostgreSQL failed: ")
    assert error.endswith("\ncorrect the cause, then run `sluice publish --dry-run` again\n")


def test_exit_codes_are_those_of_every_command(home, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(home / "nothing.json"))
    assert publish.main(["--dry-run"]) == 3
    monkeypatch.setenv("SLUICE_SITE", str(home / "nothing.yaml"))
    assert publish.main([]) == 2
    assert "nothing.yaml does not exist" in capsys.readouterr().err


def test_all_indexes_and_sequences_of_sluice_are_reserved_names():
    statements = [each.as_string() for part in tables.PARTS.values() for each in part] + [migrations.TABLE]
    created = set()
    for statement in statements:
        created |= {*re.findall(r'CREATE INDEX "?(\w+)', statement)}
        for table, columns in re.findall(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*)", statement):
            numbers = re.findall(r"(\w+) (?:bigserial|int GENERATED)", columns)
            created |= {f"{table}_pkey", *(f"{table}_{number}_seq" for number in numbers)}
    assert {"ledger_at", "losses_number_seq", "marks_pkey", "migrations_number_seq"} <= created
    assert created <= OWN_INDEXES
