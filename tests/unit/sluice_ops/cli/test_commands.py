"""The command line without a platform: help, wrong usage, and messages without services."""

import json
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from simulation.memory import MemoryChannel
from simulation.world import tier
from typer.main import get_command
from typer.testing import CliRunner

from sluice_ops.channel import ChannelAwayError, ConflictError
from sluice_ops.cli.changes import spec_of
from sluice_ops.cli.errors import Commands, WrongUsageError, explain
from sluice_ops.cloud.errors import CloudAwayError, CloudError
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.model.backpressure import Hold, Holds
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.exit_codes import AWAY, FAILED, WRONG_USAGE
from sluice_ops.model.ids import TierName, UnitId
from sluice_ops.model.incarnation import TierProgress, TierWanted
from sluice_ops.model.status import Check
from sluice_ops.model.tier import Mode
from sluice_ops.operations.snapshot import Seen
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.queries.figures import Audited, Figures, OpenLoss, Replaying
from sluice_ops.queries.remembered_units import RememberedUnit
from sluice_ops.queries.status import replaying
from sluice_ops.site.installation import PlatformError
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.view import View

HEAVY = {
    "airflow",
    "boto3",
    "confluent_kafka",
    "kazoo",
    "psycopg",
    "ortools",
    "pyspark",
    "rich",
    "structlog",
}
WITHOUT_JSON = {"agent", "controller", "ingest", "init", "test", "top"}
"""These commands run a process that logs, work on a project's files, or need a terminal."""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    return CliRunner()


def endpoints(home: Path) -> None:
    away = "127.0.0.1:1"
    airflow = {"url": f"http://{away}", "user": "admin", "password": "x"}
    addresses = {
        "kafka": away,
        "zookeeper": f"{away}/sluice/hits",
        "postgres": f"postgresql://x@{away}/x",
        "airflow": airflow,
    }
    (home / "endpoints.json").write_text(
        json.dumps({**addresses, "spark": f"spark://{away}", "home": str(home)})
    )


def test_every_command_has_help_with_an_example_and_speaks_json(runner: CliRunner) -> None:
    names = cast("Commands", get_command(app)).commands.keys()
    assert {"status", "drain", "return", "tiers", "endpoints", "feed", "logs", "doctor"} <= names
    for name in names:
        help_text = runner.invoke(app, [name, "--help"]).stdout.replace("watch -n1 ", "")
        assert "Example: sluice" in help_text, name
        assert name in WITHOUT_JSON or "--json" in help_text, name


def test_usage_names_each_argument_and_value_in_capitals() -> None:
    values = {
        f"{name} {parameter.name}": getattr(parameter, "metavar", None)
        for name, command in get_command(app).commands.items()
        for parameter in command.params
        if not getattr(parameter, "is_flag", False)
    }
    assert {"drain host", "feed rate"} <= values.keys()
    assert [name for name, metavar in values.items() if metavar is None or not metavar.isupper()] == []


def test_the_list_of_commands_shows_whole_sentences(runner: CliRunner) -> None:
    lines = runner.invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout.splitlines()
    assert len(lines) > len(get_command(app).commands)
    assert [line for line in lines[1:] if line.endswith("...")] == []


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, sluice_ops.main; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not loaded & HEAVY


def test_audit_names_postgresql_if_it_is_away(runner: CliRunner, tmp_path: Path) -> None:
    endpoints(tmp_path)
    done = runner.invoke(app, ["audit"])
    assert done.exit_code == AWAY
    assert "PostgreSQL does not answer" in done.stderr


def test_status_names_the_node_of_a_tier_that_cannot_be_read(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints(tmp_path)
    monkeypatch.setattr("sluice_ops.cli.status.read_figures", Figures)
    view = View(unread={"counts": "/tiers/counts/owner"})
    monkeypatch.setattr("sluice_ops.cli.status.snapshot_with_figures", lambda: Seen(view))
    message = (
        "counts cannot be read: running units continue, and nothing is decided for them; "
        "/tiers/counts/owner: "
    )
    assert message in runner.invoke(app, ["status"]).stdout
    assert message in json.loads(runner.invoke(app, ["status", "--json"]).stdout)["notes"][0]


def test_status_warns_of_old_figures_and_a_nearly_full_disk(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints(tmp_path)
    monkeypatch.setattr("sluice_ops.operations.connect.CONNECT_SECONDS", 0.2)
    usage = shutil.disk_usage(tmp_path)._replace(free=7 * 2**20)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    figures = {
        "tier": "entry",
        "incarnation": 1,
        "rate_in": 1,
        "rate_out": 1,
        "lag": 0,
        "latency_ms": None,
        "slots": {},
        "details": {},
    }
    old = TierProgress.model_validate({**figures, "at": time.time() - 100})
    monkeypatch.setattr("sluice_ops.cli.status.read_figures", lambda: Figures({"entry": old}))
    output = runner.invoke(app, ["status"]).stdout
    assert "Old figures: entry (1 min old). The tables show the last known values." in output
    assert (
        f"Disk: 7 MiB are free at {tmp_path}. Kafka, ZooKeeper and PostgreSQL stop when the disk is full"
        in output
    )


@pytest.mark.parametrize(
    ("pace", "sentence", "age", "message"),
    [
        (
            50.0,
            "",
            1,
            "Replay 3 of entry: 9 written, 2 dropped as duplicates, 700 of raw left, about 14 s at 50/s",
        ),
        (50.0, "goes slower", 1, "700 of raw left, about 14 s at 50/s; the replay goes slower"),
        (0.0, "stands still", 1, "700 of raw left; the replay stands still"),
        (50.0, "", 100, "stopped 1 min ago: `sluice replay --resume 3`, or --cancel 3"),
    ],
)
def test_status_shows_progress_and_interruption_of_a_replay(
    pace: float, sentence: str, age: float, message: str
) -> None:
    now = time.time()
    replay = Replaying(
        number=3,
        tier="entry",
        source="raw",
        rows_out=9,
        dropped=2,
        left=700,
        pace=pace,
        sentence=sentence,
        said_at=now - age,
    )
    assert message in replaying(replay, now)


NOW, LONG_AGO = 1_000_100.0, 1_000_000.0
BALANCED = Audited(tier="entry", once=9, again=0, judges=True, at=NOW)
PARTIAL = BALANCED.model_copy(update={"partial": "its output is gone", "since": {"raw/0": 7}})
LOSS = OpenLoss(
    number=3, tier="entry", place="raw/0:7", records=2, sentence="2 records are nowhere", found_at=NOW
)


@pytest.mark.parametrize(
    ("figures", "code", "message"),
    [
        (Figures(audit=(BALANCED,)), 0, "balanced"),
        (Figures(audit=(BALANCED,), losses=(LOSS,)), FAILED, "`sluice audit --settle 3`"),
        (Figures(losses=(LOSS,)), FAILED, "2 records are nowhere"),  # the tier is no longer declared
        (Figures(audit=(BALANCED.model_copy(update={"judges": False}),)), 0, "filters records: not judged"),
        (
            Figures(audit=(BALANCED.model_copy(update={"checked": Check.BATCHES}),)),
            0,
            "rows are not checked",
        ),
        (Figures(audit=(BALANCED.model_copy(update={"checked": Check.SUMS}),)), 0, "balanced by its sums"),
        (
            Figures(audit=(BALANCED.model_copy(update={"unseen": 4}),)),
            0,
            "entry: 4 records were deleted from their stream",
        ),
        (
            Figures(audit=(BALANCED.model_copy(update={"late": 4}),)),
            0,
            "entry: 4 records came later than State.lateness allows",
        ),
        (
            Figures(audit=(BALANCED.model_copy(update={"at": LONG_AGO}),)),
            FAILED,
            "has not checked entry for a minute or more",
        ),
        (
            Figures(audit=(PARTIAL,)),
            0,
            "not audited from its first record: it begins at raw/0:7, for its output is gone.",
        ),
    ],
)
def test_audit_fails_for_a_loss_and_for_a_stopped_audit(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, figures: Figures, code: int, message: str
) -> None:
    monkeypatch.setattr("sluice_ops.cli.audit.read_figures", lambda: figures)
    monkeypatch.setattr("sluice_ops.cli.audit.open_channel", lambda: nullcontext(MemoryChannel()))
    monkeypatch.setattr(
        "sluice_ops.cli.audit.time",
        SimpleNamespace(time=lambda: NOW, strftime=time.strftime, localtime=time.localtime),
    )
    done = runner.invoke(app, ["audit"])
    assert (done.exit_code, message in done.stdout) == (code, True)
    assert json.loads(runner.invoke(app, ["audit", "--json"]).stdout)["ok"] is (code == 0)


def test_audit_fails_for_a_running_tier_that_is_not_audited(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = MemoryChannel()
    for name, running in (("entry", True), ("orders", True), ("retired", False)):
        channel.put(paths.tier(name), tier(name, Mode.BATCH, 0))
        channel.put(paths.wanted(name), TierWanted(running=running))
    monkeypatch.setattr("sluice_ops.cli.audit.open_channel", lambda: nullcontext(channel))
    monkeypatch.setattr("sluice_ops.cli.audit.read_figures", lambda: Figures(looked_at=frozenset({"entry"})))
    done = runner.invoke(app, ["audit"])
    assert done.exit_code == FAILED
    assert "orders should run, but the audit has not checked it yet" in done.stdout
    assert json.loads(runner.invoke(app, ["audit", "--json"]).stdout)["unaudited"] == ["orders"]


def test_down_without_a_platform_prints_json(runner: CliRunner) -> None:
    assert json.loads(runner.invoke(app, ["down", "--json"]).stdout)["stopped"] == []


@pytest.mark.parametrize("amount", ["none", "-1", "101%", "%", "1.5", "80 percent"])
def test_an_invalid_amount_is_refused_with_the_right_syntax(runner: CliRunner, amount: str) -> None:
    done = runner.invoke(app, ["scale", "entry", "--", amount])
    assert done.exit_code == WRONG_USAGE
    reason = (
        "is neither a number of slots nor a part of the cluster: "
        "write 3, or a per cent from 0% to 100% such as 80%"
    )
    assert done.stderr == f"scale: k: {amount!r} {reason}\n"


def test_a_number_below_0_is_refused_as_such(runner: CliRunner) -> None:
    done = runner.invoke(app, ["scale", "entry", "-1"])
    assert done.exit_code == WRONG_USAGE
    assert done.stderr == "-1 is taken as an option; no number here is below 0. See `sluice scale --help`\n"
    assert "No such option: --maximim" in runner.invoke(app, ["scale", "entry", "1", "--maximim", "2"]).stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--for 2", "--for: '2': the unit is missing; write 30m, 2h or 1d"),
        ("--for 2fortnights", "--for: '2fortnights': 'fortnights' is no unit"),
        (
            "--until 2020-01-01T06:00",
            "--until: '2020-01-01T06:00' is past; name a time in the future, such as 2h or 06:00",
        ),
        ("--for 2h --until 06:00", "--for and --until exclude each other: give one of them"),
    ],
)
def test_an_impossible_time_is_wrong_usage(runner: CliRunner, words: str, reason: str) -> None:
    done = runner.invoke(app, ["scale", "enrich", "3", *words.split()])
    assert (done.exit_code, done.stderr.startswith(reason)) == (WRONG_USAGE, True)


WRONG = [
    "drain",
    "burst entry none",
    "plan fly",
    "plan drain",
    "bogus",
    "operations --last 0",
    "logs kafka -n -1",
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_exits_2_and_shows_the_usage(runner: CliRunner, words: str) -> None:
    done = runner.invoke(app, words.split())
    assert done.exit_code == WRONG_USAGE
    assert "drain HOST" in done.stderr or "Error" in done.stderr


def test_a_platform_never_started_exits_3_and_says_how_to_start_it(runner: CliRunner) -> None:
    done = runner.invoke(app, ["tiers", "--json"])
    assert done.exit_code == AWAY
    assert done.stdout == ""
    assert "sluice up" in done.stderr


def test_without_zookeeper_status_shows_the_last_known_state_and_exits_3(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints(tmp_path)
    monkeypatch.setattr("sluice_ops.operations.connect.CONNECT_SECONDS", 0.2)
    done = runner.invoke(app, ["status"])
    assert done.exit_code == AWAY
    assert "PostgreSQL does not answer" in done.stdout
    assert "ZooKeeper at 127.0.0.1:1/sluice/hits does not answer" in done.stdout
    output = json.loads(runner.invoke(app, ["status", "--json"]).stdout)
    assert (output["zookeeper"], output["postgres"]) == (False, False)
    assert len(output["notes"]) == 2
    assert "Tiers run on" in done.stdout


def test_without_zookeeper_and_units_status_does_not_claim_that_tiers_run(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints(tmp_path)
    monkeypatch.setattr("sluice_ops.operations.connect.CONNECT_SECONDS", 0.2)
    stopped = RememberedUnit("h1", UnitId("driver-entry-1"), None)
    monkeypatch.setattr("sluice_ops.cli.status.remembered_units", lambda _home: iter([stopped]))
    output = runner.invoke(app, ["status"]).stdout
    assert "No unit runs on this machine. `sluice up` starts the embedded platform" in output
    assert "Tiers run on" not in output
    alive = stopped._replace(pid=7)
    monkeypatch.setattr("sluice_ops.cli.status.remembered_units", lambda _home: iter([stopped, alive]))
    assert "Tiers run on" in runner.invoke(app, ["status"]).stdout


@pytest.mark.parametrize("has_site", [True, False])
def test_down_without_a_project_fails_with_the_next_step(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_site: bool
) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SLUICE_SITE", str(tmp_path / "site.yaml"))
    if has_site:
        (tmp_path / "site.yaml").write_text("")
    done = runner.invoke(app, ["down"])
    if has_site:
        assert (done.exit_code, done.stdout) == (0, "No service was running.\n")
    else:
        assert done.exit_code == FAILED
        assert "make one with `sluice init NAME`" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ChannelAwayError("away"), AWAY),
        (FileNotFoundError("none"), AWAY),
        (SiteError("wrong"), WRONG_USAGE),
        (KeyError("bug"), FAILED),
        (CloudAwayError("EC2 does not answer"), AWAY),
        (CloudError("EC2 refused"), FAILED),
        (PlatformError("SLUICE_PORT_BASE=many"), FAILED),
        (ConflictError("it holds something that does not parse"), FAILED),
    ],
)
def test_each_kind_of_error_has_its_code(error: Exception, code: int) -> None:
    exit_code, message = explain(error)
    assert exit_code == code
    assert "unexpected" not in message or isinstance(error, KeyError)


def test_typed_words_become_a_change() -> None:
    assert spec_of(KINDS["scale"], ["entry", "2"]) == ChangeSpec.model_validate(
        {"kind": "scale", "tier": "entry", "k": 2}
    )
    assert spec_of(KINDS["scale"], ["entry", "12.5 %"]).k == "12.5%"
    assert spec_of(KINDS["migrate"], ["entry", "zone:ec2"]).to == "zone:ec2"
    assert spec_of(KINDS["upgrade"], ["entry"]).release is None
    assert spec_of(KINDS["upgrade"], ["entry", "r7-3f9a2c1b"]).release == "r7-3f9a2c1b"
    assert spec_of(KINDS["repartition"], ["counts", "4"]).partitions == 4
    for bad_number in ("four", "0"):
        with pytest.raises(WrongUsageError, match="repartition: partitions: "):
            spec_of(KINDS["repartition"], ["counts", bad_number])
    assert spec_of(KINDS["pause"], []).kind == "pause"
    assert spec_of(KINDS["pause"], ["counts"]).tier == "counts"
    assert spec_of(KINDS["write-off"], []).host is None
    assert spec_of(KINDS["write-off"], ["h1"]).host == "h1"
    with pytest.raises(WrongUsageError, match=r"usage: write-off \[HOST\]"):
        spec_of(KINDS["write-off"], ["h1", "h2"])


def test_holds_are_listed_with_the_tier_that_caused_them(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", View)
    assert runner.invoke(app, ["holds"]).stdout.strip() == "No tier was throttled."
    assert json.loads(runner.invoke(app, ["holds", "--json"]).stdout) == []
    hold = Hold(
        tier=TierName("entry"),
        culprit=TierName("counts"),
        sentence="is 200000 records, 60 s behind in hits",
        begun=time.time() - 90,
    )
    monkeypatch.setattr("sluice_ops.operations.snapshot.snapshot", lambda: View(holds=Holds(last=(hold,))))
    assert json.loads(runner.invoke(app, ["holds", "--json"]).stdout) == [hold.model_dump(mode="json")]
    output = runner.invoke(app, ["holds"], env={"COLUMNS": "200"}).stdout
    assert "counts is 200000 records, 60 s behind in hits" in output
    assert "entry" in output
