"""The task of `replay_tier` runs `sluice replay` with the form's values, and ends as it ends."""

import json
import sys
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from sluice_airflow.errors import AwayError
from sluice_airflow.operators.replay import ReplayOperator

COMMAND = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
names = ("SLUICE_SITE", "SLUICE_ENDPOINTS", "SLUICE_HOME")
(here / "called.json").write_text(json.dumps([sys.argv[1:], [os.environ[name] for name in names]]))
print("12 written", file=sys.stderr, flush=True)
print({sentence!r}, flush=True)
time.sleep({seconds})
sys.exit({code})
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a command `sluice` beside the interpreter; return how it was called."""

    def put(code=0, sentence="Replay 3 of entry: 12 records written; 4 s.", seconds=0):
        script = tmp_path / "sluice"
        script.write_text(
            COMMAND.format(python=sys.executable, sentence=sentence, seconds=seconds, code=code)
        )
        script.chmod(0o755)

        monkeypatch.setattr("sluice_airflow.operators.replay.sys.executable", str(tmp_path / "python"))
        return lambda: json.loads((tmp_path / "called.json").read_text())

    return put


def context(*, deadline=60.0, dry_run=False):
    pushed = {}
    return {
        "ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}), pushed=pushed),
        "dag": SimpleNamespace(dag_id="replay_tier"),
        "run_id": "r1",
        "dag_run": SimpleNamespace(start_date=datetime.now(UTC)),
        "params": {"deadline": deadline, "dry_run": dry_run},
    }


def operator(**fields):
    return ReplayOperator(task_id="replay", tier="entry", rate="100", **fields)


def test_a_replay_has_the_name_of_its_run_and_the_values_of_the_form(command, monkeypatch, tmp_path):
    called = command()
    for name in ("SITE", "ENDPOINTS", "HOME"):
        monkeypatch.setenv(f"SLUICE_{name}", str(tmp_path / name.lower()))
    done = operator(records="quarantine", begin="2026-11-21T22:00", end="raw/0:7").execute(context())
    assert done == {"sentence": "Replay 3 of entry: 12 records written; 4 s."}
    words, environment = called()
    assert words[:3] == ["replay", "entry", "--quarantine"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options == {
        "--from": "2026-11-21T22:00",
        "--to": "raw/0:7",
        "--rate": "100",
        "--name": "airflow:replay_tier/r1",
    }
    assert environment == [str(tmp_path / name) for name in ("site", "endpoints", "home")]


def test_a_dry_run_leaves_the_commands_sentence_as_the_plan(command):
    called = command(sentence="Would replay up to 12 records of raw.quarantine through entry.")
    dry = context(dry_run=True)
    operator().execute(dry)
    assert dry["ti"].pushed["plan"]["sentence"].startswith("Would replay up to 12 records")
    assert called()[0] == ["replay", "entry", "--rate", "100", "--dry-run"]


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (1, AirflowFailException, "^the tier keeps state$"),
        (3, AwayError, "^the tier keeps state$"),
        (130, AwayError, "^the tier keeps state$"),
        (137, AirflowFailException, "^exit code 137: the tier keeps state$"),
    ],
)
def test_only_a_replay_that_a_service_or_a_signal_ended_is_tried_again(command, code, error, says):
    command(code, sentence="the tier keeps state")
    with pytest.raises(error, match=says):
        operator().execute(context())


def test_a_replay_stops_at_the_runs_deadline(command):
    command(seconds=60, sentence="12 written; 88 left")
    began = time.monotonic()
    with pytest.raises(
        AirflowFailException, match=r"deadline passed, so the replay was stopped\. 12 written"
    ):
        operator().execute(context(deadline=1.0))
    assert time.monotonic() - began < 30


def test_a_person_who_ends_the_task_ends_the_replay(command):
    command(seconds=60)
    task, failures = operator(), []

    def run():
        try:
            task.execute(context())
        except AirflowFailException as error:
            failures.append(str(error))

    running = threading.Thread(target=run)
    running.start()
    while task._process is None or task._process.poll() is not None:
        time.sleep(0.05)
    task.on_kill()
    running.join(timeout=30)
    assert not running.is_alive()
    assert failures
