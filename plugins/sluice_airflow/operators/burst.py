"""The tasks of a burst: check the quota, ask another person if the site wants that, launch
instances, wait for their agents, terminate instances.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from sluice_airflow.errors import EndedByPersonError, StepFailedError, UnusableFormError, translated_errors
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.operators.base import TRIGGERER_SECONDS, SluiceOperator, asked_by, change_spec
from sluice_airflow.operators.steps import END, StepOperator, change_of, seconds_left, states_of
from sluice_airflow.triggers.operations import HostsTrigger
from sluice_ops.cloud.burst_hosts import (
    after_leave,
    comes_in_time,
    instances_needed,
    readings_of,
    tiers_by_host,
)
from sluice_ops.cloud.cost import launch_of, per_million, per_million_in_words, receipt
from sluice_ops.cloud.errors import CloudAwayError, CloudError, MayNotAskError
from sluice_ops.cloud.instance import Instance
from sluice_ops.cloud.launch_checks import check_launch
from sluice_ops.cloud.reaper import reap, retire_soon
from sluice_ops.cloud.receipts import keep_receipts, receipts_now
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeSpec, Operation
from sluice_ops.model.ids import TierName
from sluice_ops.operations import requests
from sluice_ops.planning.changes.burst import BurstError

if TYPE_CHECKING:
    from sluice_ops.cloud.ec2 import Cloud

PLAN_SECONDS = 60.0
"""How long a dry run waits for the controller's plan."""
LAUNCHING_SECONDS = 20.0
"""A task that a person failed may run on for some seconds and still launch an instance."""


LAUNCH = "launch"
"""The XCom of `quota` with the instances and their cost."""


@contextmanager
def cloud_of(hook: SluiceHook) -> Iterator["Cloud"]:
    """Yield the pipeline's instances.

    A refusal by EC2 fails the task; if EC2 does not answer, the task is retried.
    """
    with translated_errors():
        try:
            yield hook.cloud()
        except CloudAwayError:
            raise
        except CloudError as error:
            raise AirflowFailException(str(error)) from error


class QuotaOperator(SluiceOperator):
    """Computes how many instances a burst needs, and refuses the burst above a limit of the site
    file or of EC2.
    """

    template_fields: Sequence[str] = ("tier", "k")
    ui_color = "#f2e6cf"

    def __init__(self, *, tier: str, k: str, **kwargs: Any) -> None:
        """Check a burst of `tier` by `k` workers."""
        super().__init__(**kwargs)
        self.tier = tier
        self.k = k

    def execute(self, context: Context) -> int:
        """Return the number of instances; no instance is launched and no operation is posted."""
        config, change = self.hook.site().ec2, change_of(context)
        spec = ChangeSpec(kind="burst", tier=TierName(self.tier), k=int(self.k))
        try:
            with cloud_of(self.hook) as cloud, self.hook.open() as channel:
                running = cloud.instances()
                count = instances_needed(channel, spec, change, running, config)
                receipts = receipts_now(channel, running, time.time())
                launch = launch_of(receipts, count, config, time.time())
                notes = check_launch(cloud, count)
                in_time = comes_in_time(channel, TierName(self.tier), count, receipts, time.time())
                million = per_million(launch, int(self.k), readings_of(channel, TierName(self.tier)))
        except BurstError as error:
            raise UnusableFormError(str(error)) from error
        for note in notes:
            self.log.warning("%s", note)
        self.log.log(logging.WARNING if in_time.too_late else logging.INFO, "%s", in_time.sentence)
        for sentence in per_million_in_words(million):
            self.log.info("%s", sentence)
        self.log.info(
            "%s more workers of %s need %d more instances of %s; %d run now, and the site file allows %d",
            self.k,
            self.tier,
            count,
            " or ".join(config.instance_types),
            len(running),
            config.max_instances,
        )
        if context["params"]["dry_run"]:
            need = {
                "instances": count,
                "instance_types": [*config.instance_types],
                "cost_per_hour": launch.per_hour,
                "cost_per_million": million,
                "break_even": asdict(in_time),
                "tier": self.tier,
                "k": int(self.k),
            }
            planned = self.plan(context, spec.model_copy(update={"launch": launch}))
            context["ti"].xcom_push("plan", {**need, **planned})
            raise DownstreamTasksSkipped(tasks=sorted(self.downstream_task_ids))
        context["ti"].xcom_push(LAUNCH, launch.model_dump(mode="json"))
        return count

    def plan(self, context: Context, spec: ChangeSpec) -> dict[str, Any]:
        """Return the controller's plan of the handover, as if the instances had joined."""
        with translated_errors(), self.hook.open() as channel:
            ((_, result),) = requests.run(
                channel, change_of(context), spec, asked_by(context), PLAN_SECONDS, dry_run=True
            )
        if not result.ok:
            raise StepFailedError(f"preflight failed: {result.sentence}")  # noqa: TRY003, EM102
        self.log.info(
            "Dry run: the instances would be launched, then %s. No tier moves. %s",
            result.sentence,
            result.details,
        )
        return {"sentence": result.sentence, **result.details}


class ApprovalOperator(StepOperator):
    """Asks the controller whether the instances of `quota` may be launched; if another person has
    to approve that, the task waits, and shows the form.
    """

    def operation(self, context: Context) -> Operation:
        """Return the operation, with the instances and their cost."""
        operation = super().operation(context)
        launch = context["ti"].xcom_pull(task_ids="quota", key=LAUNCH)
        spec = ChangeSpec.model_validate({**operation.spec.model_dump(), "launch": launch})
        return operation.model_copy(update={"spec": spec})


class LaunchOperator(SluiceOperator):
    """Launches the instances that `quota` computed.

    The run's token makes a retry find the first try's instances.
    """

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> list[str]:
        """Return the host names of the instances; EC2 launches all of them or none."""
        count = int(context["ti"].xcom_pull(task_ids="quota"))
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            launched = cloud.launch(change_of(context), count, self.log.info)
            keep_receipts(channel, [*cloud.instances(), *launched], time.time())
        hosts = [str(instance.host) for instance in launched]
        if not launched:
            self.log.info("Launched nothing: the running instances have room for the workers")
            return []
        self.log.info("Launched %s; they join as hosts %s", ", ".join(map(str, launched)), ", ".join(hosts))
        return hosts


class WaitForHostOperator(SluiceOperator):
    """Waits until the agents of all launched instances have registered."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> None:
        """Check once, then defer to the triggerer."""
        hosts: list[str] = context["ti"].xcom_pull(task_ids="launch")
        with translated_errors(), self.hook.open() as channel:
            missing = [host for host in hosts if not channel.exists(paths.live(host))]
            waited = requests.waited_seconds(channel, change_of(context))
        if not missing:
            self.log.info("The agents of %s have registered", ", ".join(hosts) or "no new instance")
            return
        self.log.info("Waiting for the agents of %s", ", ".join(missing))
        until = time.time() + seconds_left(context, waited)
        self.defer(
            trigger=HostsTrigger(hosts, until, self.sluice_conn_id),
            method_name="resume",
            timeout=until - time.time() + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any]) -> None:  # noqa: ARG002
        """Fail: the deadline passed before all agents registered."""
        missing = ", ".join(event["missing"])
        message = (
            f"the agents of {missing} did not register within the run's deadline. "
            "The launched instances are being terminated. Read the instance's console log; "
            "if the start was only slow, trigger the runbook again with a longer deadline"
        )
        raise AirflowFailException(message)


class TerminatingOperator(SluiceOperator):
    """Terminates instances that run no tier."""

    ui_color = "#f2e6cf"

    def terminate(
        self, free: list[Instance], kept: Mapping[Instance, list[str]], running: list[Instance]
    ) -> None:
        """Terminate the instances `free`; fail if a tier runs on another that should go.

        `running` are all instances.
        """
        ids = [each.id for each in free]
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            if ids:
                cloud.terminate(ids)
            keep_receipts(channel, running, time.time(), ids)
        self.log.info("Terminated %s", ", ".join(ids) or "no instance: there is none without a tier")
        if kept:
            named = "; ".join(
                f"{each.id} (tier {', '.join(tiers)} runs on {each.host})" for each, tiers in kept.items()
            )
            message = (
                f"kept {named}: terminating an instance interrupts its tier. Run leave_ec2: "
                "it moves tiers before it terminates instances"
            )
            raise AirflowFailException(message)


class TerminateOperator(TerminatingOperator):
    """Terminates the instances of the site that run no tier.

    An instance that runs a tier is kept, and the task fails and names the instance: without the
    instance, records would wait until the tier runs elsewhere. After a leave of one tier, other
    tiers may stay on their instances.
    """

    template_fields: Sequence[str] = ("change",)

    def __init__(self, *, change: dict[str, Any], **kwargs: Any) -> None:
        """Terminate after a change with these fields of a `ChangeSpec`, templates of the form."""
        super().__init__(**kwargs)
        self.change = change

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the terminated instances, and retire their hosts.

        A second call has nothing left to terminate. The log and the trail have the cost.
        """
        spec, now = change_spec(self.change, context), time.time()
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            running = cloud.instances()
            free, kept = after_leave(channel, spec, running, now)
        self.terminate(free, kept, running)
        config = self.hook.site().ec2
        receipts = {each.host: receipt(each, config, now) for each in free}
        for sentence in receipts.values():
            self.log.info("%s", sentence)
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            retired = retire_soon(channel, cloud, asked_by(context), receipts)
        self.log.info("Retired %s", ", ".join(retired) or "no host")
        return [each.id for each in free]


class ReapOperator(SluiceOperator):
    """Terminates orphaned instances, and retires the hosts of ended instances."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the terminated instances, each with the reason, and the retired hosts.

        Skip where EC2 may not be asked: no burst can have begun there.
        """
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            try:
                reaped = reap(cloud, channel, asked_by(context), time.time())
            except MayNotAskError as error:
                message = f"skipped: this machine cannot have launched an instance: {error}"
                raise AirflowSkipException(message) from error
        for instance, why in reaped.terminated.items():
            self.log.warning("Terminated %s: %s", instance, why)
        self.log.info("Retired %s", ", ".join(reaped.retired) or "no host")
        return {"terminated": reaped.terminated, "retired": [str(host) for host in reaped.retired]}


class TakeBackOperator(TerminatingOperator):
    """Terminates the instances that this run launched, unless the run was completed."""

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the terminated instances; fail if a person ended the run.

        Without that failure, Airflow would show a run that a person ended as a success.
        """
        end, launch = states_of(context, END, "launch")
        if end == TaskInstanceState.SUCCESS:
            message = "the run was completed: leave_ec2 terminates its instances later"
            raise AirflowSkipException(message)
        by_person = end == TaskInstanceState.SKIPPED
        if by_person and launch == TaskInstanceState.FAILED:
            time.sleep(LAUNCHING_SECONDS)
        with cloud_of(self.hook) as cloud, self.hook.open() as channel:
            running, users = cloud.instances(), tiers_by_host(channel)
        own = [each for each in running if each.token == change_of(context)]
        free = [each for each in own if each.host not in users]
        self.terminate(free, {each: users[each.host] for each in own if each.host in users}, running)
        ids = [each.id for each in free]
        if by_person:
            message = f"a person ended the run; terminated instances of this run: {', '.join(ids) or 'none'}"
            raise EndedByPersonError(message)
        return ids
