"""The form with which another person answers, in Airflow, a change that waits for approval.

The form belongs to the task of the step, which is deferred. Airflow resumes the task with the
answer, and the task writes it into the channel, as `sluice approve` does.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, Param
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.approval import Asked
from sluice_ops.model.change import ChangeRecord, ChangeState
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.trail import what_of
from sluice_ops.operations.approvals import AnswerError, answer

APPROVE, REJECT = "Approve", "Reject"
"""The options of Airflow's own approvals."""
NO_REASON = "refused in Airflow, without a reason"


def show_form(context: Context, channel: Channel, identity: ChangeId) -> bool:
    """Show the form if a change waits and has no answer; return whether the change waits."""
    read = channel.read(paths.change(identity), ChangeRecord)
    if read is None or read.value.state is not ChangeState.WAITING or read.value.asked is None:
        return False
    if not channel.exists(paths.approval(identity)):
        # Airflow's page takes no answer without a value for a field that may not be null
        why = Param(
            None, type=["null", "string"], title="Why", description="The reason, for the person who asked."
        )
        upsert_hitl_detail(
            ti_id=context["ti"].id,
            options=[APPROVE, REJECT],
            subject=f"{what_of(read.value.spec)} waits for the approval of another person",
            body=_body(read.value, read.value.asked),
            params={"why": why.serialize()},
        )
    return True


def is_answer(event: Mapping[str, Any]) -> bool:
    """Tell whether Airflow has resumed the task with the answer of a person."""
    return "chosen_options" in event


def write_answer(channel: Channel, identity: ChangeId, event: Mapping[str, Any]) -> str:
    """Write the answer into the channel, and return what became of it in one sentence."""
    person = dict(event["responded_by_user"] or {}).get("name") or "nobody"
    approved = event["chosen_options"] == [APPROVE]
    why = str((event["params_input"] or {}).get("why") or ("" if approved else NO_REASON))
    try:
        answer(channel, identity, f"airflow:{person}", approved=approved, why=why)
    except AnswerError as error:
        return f"The answer of {person} does not count: {error}"
    return f"{person} {'approved' if approved else 'refused'} change {identity}"


def _body(change: ChangeRecord, asked: Asked) -> str:
    ends = datetime.fromtimestamp(change.started_at + asked.within_seconds, UTC)
    return (
        f"Asked by {asked.person or change.by}, because {asked.why}.\n\n"
        f"The plan: {asked.plan}.\n\n"
        f"Nothing is changed before the answer. Without one until {ends:%Y-%m-%d %H:%M} UTC, the change ends "
        f"as refused. The person who asked cannot approve. From a shell: `sluice approve {change.id}`.\n"
    )
