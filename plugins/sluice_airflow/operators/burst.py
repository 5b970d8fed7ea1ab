"""Burst hosts as tasks: quota, launch, wait for the agents, terminate. `sluice_ops.cloud.ec2` is imported when a task runs."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from airflow.sdk import BaseOperator, Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from sluice_airflow import forms
from sluice_airflow.errors import EndedByPersonError, StepFailedError, UnusableFormError, kinds
from sluice_airflow.hooks.channel import ChannelHook
from sluice_airflow.operators.steps import END, asked_by, change_of, seconds_left, states_of
from sluice_airflow.triggers.operations import HostsTrigger
from sluice_ops.cloud.burst_hosts import needed
from sluice_ops.cloud.users import tiers_by_host
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import TierName
from sluice_ops.operations import requests
from sluice_ops.planning.changes.burst import BurstError

PLAN_SECONDS = 60.0
"""How long a controller has to plan in a dry run, which waits by itself."""
TRIGGERER_SECONDS = 120.0
"""The triggerer may be away for this long after the trigger's own end before Airflow gives the task up."""
LAUNCHING_SECONDS = 20.0
"""The process of a task that a person has failed goes on for some seconds, and EC2 may be about to answer it."""


@contextmanager
def cloud() -> Iterator[ModuleType]:
    """Give `sluice_ops.cloud.ec2`; what EC2 refuses fails the task, and when it does not answer the task is tried again."""
    from sluice_ops.cloud import ec2  # noqa: PLC0415 - boto3 is not for the DAG processor

    with kinds():
        try:
            yield ec2
        except ec2.CloudAwayError:
            raise
        except ec2.CloudError as error:
            raise AirflowFailException(str(error)) from error


class QuotaOperator(BaseOperator):
    """Works out how many instances a burst needs, and refuses it when the site's limit does not allow them."""

    template_fields: Sequence[str] = ("tier", "k")
    ui_color = "#f2e6cf"

    def __init__(self, *, tier: str, k: str, **kwargs: Any) -> None:
        """Check a burst of `tier` by `k` workers."""
        super().__init__(**kwargs)
        self.tier = tier
        self.k = k

    def execute(self, context: Context) -> int:
        """Return the number of instances; nothing has been launched or posted so far."""
        config = forms.the_site().ec2
        try:
            with cloud() as ec2, ChannelHook().open() as channel:
                running = sum(each.token != change_of(context) for each in ec2.instances())
                count = needed(channel, self.tier, int(self.k), running, config)
        except BurstError as error:
            raise UnusableFormError(str(error)) from error
        self.log.info("%s workers of %s need %d x %s; %d run, %d are allowed", self.k, self.tier, count, config.instance_type,
                      running, config.max_instances)  # fmt: skip
        if context["params"]["dry_run"]:
            told = {
                "instances": count,
                "instance_type": config.instance_type,
                "tier": self.tier,
                "k": int(self.k),
            }
            context["ti"].xcom_push("plan", {**told, **self.plan(context)})
            raise DownstreamTasksSkipped(tasks=sorted(self.downstream_task_ids))
        return count

    def plan(self, context: Context) -> dict[str, Any]:
        """Have the controller plan the hand-over with these instances, as if they were there."""
        spec = ChangeSpec(kind="burst", tier=TierName(self.tier), k=int(self.k))
        with kinds(), ChannelHook().open() as channel:
            ((_, result),) = requests.run(
                channel, change_of(context), spec, asked_by(context), PLAN_SECONDS, dry_run=True
            )
        if not result.ok:
            raise StepFailedError(f"preflight failed: {result.sentence}")  # noqa: TRY003, EM102
        self.log.info(
            "Dry run: these would be launched, then %s. Nothing is moved. %s", result.sentence, result.details
        )
        return {"sentence": result.sentence, **result.details}


class LaunchOperator(BaseOperator):
    """Launches what `quota` has worked out, with a token of this run: a second try finds the instances of the first."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> list[str]:
        """Return the names of the hosts that the instances will be; EC2 gives all of them or none."""
        count = int(context["ti"].xcom_pull(task_ids="quota"))
        with cloud() as ec2:
            ids: list[str] = ec2.launch(change_of(context), count)
            hosts = [str(ec2.host_of(each)) for each in ids]
        self.log.info("Launched %s; their hosts will be %s", ", ".join(ids), ", ".join(hosts))
        return hosts


class WaitForHostOperator(BaseOperator):
    """Waits until the agent of each launched instance has registered its host."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> None:
        """Look once, then leave the waiting to the triggerer."""
        hosts: list[str] = context["ti"].xcom_pull(task_ids="launch")
        with kinds(), ChannelHook().open() as channel:
            missing = [host for host in hosts if not channel.exists(paths.live(host))]
        if not missing:
            self.log.info("%s answer", ", ".join(hosts))
            return
        self.log.info("Waiting for the agents of %s", ", ".join(missing))
        until = time.time() + seconds_left(context)
        self.defer(
            trigger=HostsTrigger(hosts, until),
            method_name="resume",
            timeout=until - time.time() + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any]) -> None:  # noqa: ARG002
        """Fail when the deadline came first."""
        missing = ", ".join(event["missing"])
        message = (
            f"no agent has registered {missing} within the run's deadline; look at the instance's console log. "
            "What was launched is terminated again; trigger the runbook again with a longer deadline if it only was slow"
        )
        raise AirflowFailException(message)


class TerminateOperator(BaseOperator):
    """Terminates all the site's instances, when their tiers have left them.

    Never one that a tier runs on: records would wait until the tier is started elsewhere. Such a one is kept, and the task says so.
    """

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> list[str]:  # noqa: ARG002
        """Return the ids of what was terminated; terminating twice is the same as once."""
        return self.terminate()

    def terminate(self, token: str | None = None) -> list[str]:
        """Terminate the instances that were launched with the token, or all."""
        with kinds(), ChannelHook().open() as channel:
            users = tiers_by_host(channel)
        with cloud() as ec2:
            ours = [each for each in ec2.instances() if token in {None, each.token}]
            free = [each.id for each in ours if each.host not in users]
            if free:
                ec2.terminate(free)
        self.log.info("Terminated %s", ", ".join(free) or "nothing: no instance was there without a tier")
        kept = [
            f"{each.id} (tier {', '.join(users[each.host])} runs on {each.host})"
            for each in ours
            if each.host in users
        ]
        if kept:
            message = (
                f"kept {'; '.join(kept)}, because to terminate it would interrupt the tier; run leave_ec2, which hands over first what has "
                f"no place there"
            )
            raise AirflowFailException(message)
        return free


class TakeBackOperator(TerminateOperator):
    """Terminates what this run has launched, unless the run came to its end."""

    def execute(self, context: Context) -> list[str]:
        """Return the ids of what was terminated; fail when a person has ended the run, which would else end as a success."""
        end, launch = states_of(context, END, "launch")
        if end == TaskInstanceState.SUCCESS:
            message = "the run came to its end: leave_ec2 terminates what it has launched"
            raise AirflowSkipException(message)
        by_person = end == TaskInstanceState.SKIPPED
        if by_person and launch == TaskInstanceState.FAILED:
            time.sleep(LAUNCHING_SECONDS)
        free = self.terminate(change_of(context))
        if by_person:
            message = f"a person has ended the run; what it had launched is terminated: {', '.join(free) or 'nothing'}"
            raise EndedByPersonError(message)
        return free
