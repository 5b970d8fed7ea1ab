"""`sluice drift`: the moves that the controller would make, or a note without drift."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice_ops.main import app
from sluice_ops.model.change import NO_DRIFT, NO_MOVE, Move, Plan, Result, Step
from sluice_ops.model.exit_codes import AWAY, FAILED
from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.operations.requests import StepResult

H1, H2 = HostName("h1"), HostName("h2")
MOVE = Move(
    tier=TierName("counts"),
    before=Placement(driver=H1, slots=(H1, H1)),
    after=Placement(driver=H1, slots=(H1, H2)),
    why="has 2 workers on h1, but there is room to have at most 1 on each host",
)


def fake_controller(monkeypatch: pytest.MonkeyPatch, plan: Plan | None, *, answers: bool = True) -> list[str]:
    """Let the controller answer with a plan, refuse the plan, or not answer; return the list of
    requests.
    """
    requests = []

    def run(
        _channel: object, _change: str, spec: Any, *_more: object, dry_run: bool, **_rest: object
    ) -> list[StepResult]:
        requests.append(f"{spec.kind} {dry_run}")
        details = {} if plan is None else {"plan": plan.model_dump(mode="json")}
        return [
            StepResult(
                Step.PREFLIGHT, Result(ok=plan is not None, sentence="said", finished_at=1.0, details=details)
            )
        ]

    monkeypatch.setattr(
        "sluice_ops.cli.drift.read_result", lambda _channel, _identity: "a result" if answers else None
    )
    for module in ("drift", "carry_out"):
        monkeypatch.setattr(f"sluice_ops.cli.{module}.run", run)
        monkeypatch.setattr(f"sluice_ops.cli.{module}.open_channel", nullcontext)
    return requests


def test_drift_lists_drifted_tiers_and_predicts_the_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = fake_controller(
        monkeypatch,
        Plan(
            moves=(MOVE,),
            predicted_seconds=70,
            predicted_gap_seconds=0.5,
            notes=("enrich cannot be repaired now",),
        ),
    )
    done = CliRunner().invoke(app, ["drift"])
    assert done.exit_code == 0
    assert "has 2 workers on h1" in done.stdout
    assert "enrich cannot be repaired now" in done.stdout
    assert "`sluice drift --repair` takes about 70 s, with a gap of about 0.5 s" in done.stdout
    output = json.loads(CliRunner().invoke(app, ["drift", "--json"]).stdout)
    assert [(line["tier"], line["moves"]) for line in output["drift"]] == [("counts", 1)]
    assert output["predicted_seconds"] == 70
    assert requests == ["repair True", "repair True"]


def test_no_drift_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_controller(monkeypatch, Plan(notes=(NO_DRIFT,)))
    assert CliRunner().invoke(app, ["drift"]).stdout == "No drift: every tier is placed as planned.\n"
    assert json.loads(CliRunner().invoke(app, ["drift", "--json"]).stdout)["drift"] == []


def test_drift_without_a_possible_move_shows_only_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_controller(monkeypatch, Plan(notes=("enrich cannot be repaired now", NO_MOVE)))
    output = CliRunner().invoke(app, ["drift"]).stdout
    assert output == "No move is possible now:\nenrich cannot be repaired now\n"


def test_a_repair_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = fake_controller(monkeypatch, Plan(moves=(MOVE,)))
    done = CliRunner().invoke(app, ["drift", "--repair", "--dry-run"])
    assert done.exit_code == 0
    assert "1. counts: driver h1, workers h1, h1 → driver h1, workers h1, h2" in done.stdout
    CliRunner().invoke(app, ["drift", "--repair"])
    assert requests == ["repair True", "repair False"]


def test_a_controller_without_an_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_controller(monkeypatch, None, answers=False)
    done = CliRunner().invoke(app, ["drift"])
    assert (done.exit_code, done.stderr) == (AWAY, "said\n")


def test_a_refused_plan_is_a_failure_as_for_any_change(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_controller(monkeypatch, None)
    for words in (["drift"], ["drift", "--json"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stdout, done.stderr) == (
            FAILED,
            "",
            "no plan for the drift: said\n",
        )
    assert CliRunner().invoke(app, ["plan", "repair"]).exit_code == FAILED
