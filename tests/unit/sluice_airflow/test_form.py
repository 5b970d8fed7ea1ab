"""A form's values become a change, which is the same in every task and every try of a run."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from sluice_airflow.errors import UnusableFormError, translated_errors
from sluice_airflow.operators.steps import StepOperator
from sluice_ops.model.change import Step

STARTED = datetime(2026, 11, 22, 5, 30, tzinfo=UTC)
CONTEXT = {
    "dag": SimpleNamespace(dag_id="scale_tier"),
    "run_id": "r1",
    "dag_run": SimpleNamespace(start_date=STARTED, triggering_user_name=None),
    "params": {"deadline": 900, "dry_run": False},
}


def spec_of(**form):
    return (
        StepOperator(
            task_id="preflight", step=Step.PREFLIGHT, change={"kind": "scale", "tier": "enrich", **form}
        )
        .operation(CONTEXT)
        .spec
    )


@pytest.mark.parametrize(("until", "end"), [("2h", "07:30"), ("06:00", "06:00")])
def test_the_end_time_of_a_number_counts_from_the_start_of_the_run(until, end):
    assert spec_of(k="3", until=until).until == datetime.fromisoformat(f"2026-11-22T{end}+00:00").timestamp()


def test_an_empty_field_sets_no_value():
    assert spec_of(k="3", until="").until is None


def test_limits_are_passed_on_where_the_form_has_them():
    spec = spec_of(k="50%", minimum="2", maximum="80%")
    assert (spec.k, spec.minimum, spec.maximum) == ("50%", 2, "80%")
    assert (spec_of(k="3", minimum="", maximum="").minimum, spec_of(k="3", maximum="").maximum) == (
        None,
        None,
    )


def test_workers_are_separated_by_commas():
    assert spec_of(workers="slot-counts-3-1, slot-counts-3-2").workers == (
        "slot-counts-3-1",
        "slot-counts-3-2",
    )
    assert spec_of(workers="").workers == ()


def test_an_unusable_end_time_is_refused_before_any_post():
    with (
        pytest.raises(
            UnusableFormError,
            match=r"until: .2x.: .x. is no unit; write 30m, 2h or 1d\. No operation was posted",
        ),
        translated_errors(),
    ):
        spec_of(k="3", until="2x")
