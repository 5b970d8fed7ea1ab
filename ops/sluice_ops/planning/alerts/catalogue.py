"""Every alert of Sluice: its texts and limits. Causes stand before their effects.

The controller tells the alerts that are `watched`. Prometheus tells those with a `rule`: `rules`
makes their file from this list.
"""

from dataclasses import dataclass
from functools import cache

from sluice_ops.model.alert import CHANGE_WAITS, Condition, Severity
from sluice_ops.model.backpressure import EXPIRY_PART

CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
EVENT_SECONDS = 86_400.0
"""How long an event, such as a failed change, stays in the list of alerts."""
QUARANTINE_PART = 0.01
"""The part of a tier's input in quarantine above which an alert tells."""
CERTIFICATE_DAYS = 21
"""How long before its end a certificate alerts."""
TOKEN_PART = 0.25
"""The last part of its life in which an unused join token alerts."""


@dataclass(frozen=True)
class AlertKind:
    """One kind of alert. Texts have places such as `{tier}`, which Prometheus fills from labels."""

    name: str
    severity: Severity
    wait: float
    """How long the state lasts before the alert is told. Unit: seconds."""
    happened: str
    did: str
    do: str
    rule: tuple[str, str] | None = None
    """The name and the expression of Prometheus's rule; None: no metric tells it."""
    watched: bool = True
    """Whether the controller tells it; False: only Prometheus can."""
    page: str = ""
    """The page of what it is about in Airflow's page Sluice; empty: the list of alerts."""
    stops_reboots: bool = True
    """Whether it stops a rolling reboot: the reboots may cause it, or make it worse.

    False: it has another cause, such as a busy processor, bad records, or a person.
    """

    def condition(  # noqa: PLR0913 - the places of the texts
        self,
        subject: str,
        *,
        detail: str = "",
        causes: tuple[str, ...] = (),
        link: str = "",
        page: str = "",
        ends_at: float | None = None,
        recovers: bool = True,
        **places: str,
    ) -> Condition:
        """Return the condition in which a subject is; `detail` follows what happened."""
        happened = self.happened.format(**places)
        return Condition(
            kind=self.name,
            subject=subject,
            severity=self.severity,
            wait=self.wait,
            happened=f"{happened}: {_short(detail)}" if detail else happened,
            did=self.did.format(**places),
            do=self.do.format(**places),
            causes=causes,
            link=link,
            page=page or self.page.format(**places),
            ends_at=ends_at,
            recovers=recovers,
        )


LONGEST_DETAIL = 400
"""How many characters of a detail an alert keeps."""


def _short(detail: str) -> str:
    return detail if len(detail) <= LONGEST_DETAIL else f"{detail[:LONGEST_DETAIL]} …"


ALERTS = (
    AlertKind(
        "nobody-leads",
        CRITICAL,
        60,
        "{value} controllers lead instead of one",
        "records flow, but no change is possible and no alert is told",
        "read `sluice status` and `sluice logs controller`; check ZooKeeper with `sluice doctor`",
        ("SluiceNobodyLeads", "(sum(sluice_controller_leader) or vector(0)) != 1"),
        watched=False,
    ),
    AlertKind(
        "controller-stands-still",
        CRITICAL,
        0,
        "the leading controller has finished no pass for {value} s",
        "records flow; a controller whose loop hangs ends itself, and another one leads",
        "read `sluice logs controller`: look for what each pass waits for, or for a busy host",
        ("SluiceControllerStandsStill", "time() - sluice_controller_last_pass_timestamp_seconds > 60"),
        watched=False,
    ),
    AlertKind(
        "channel-away",
        CRITICAL,
        60,
        "{role} {tier} at {instance} has lost ZooKeeper",
        "the process goes on with its last orders",
        "run `sluice doctor`; if only this process has lost ZooKeeper, check the network of its host",
        ("SluiceChannelAway", "sluice_channel_connected == 0"),
        watched=False,
    ),
    AlertKind(
        "channel-unreadable",
        CRITICAL,
        60,
        "nodes of the channel cannot be read",
        "what runs goes on; nothing is decided for what the nodes describe",
        "follow the sentence in `sluice status`, which names each node",
    ),
    AlertKind(
        CHANGE_WAITS,
        WARNING,
        0,
        "{what}, asked by {by}, waits for the approval of another person",
        "nothing is changed until the answer; without one in {value}, the change ends as refused",
        "look at the plan with `sluice approve`; then run `sluice approve {change}`, "
        'or `sluice approve {change} --refuse --why "…"`',
        stops_reboots=False,
        page="changes/{change}",
    ),
    AlertKind(
        "site-refused",
        WARNING,
        60,
        "the changed site file cannot be used",
        "the last valid version of the file applies",
        "correct the file, and check it with `sluice doctor`",
    ),
    AlertKind(
        "brake",
        CRITICAL,
        15,
        "many hosts were lost at once: the brake holds",
        "nothing is moved off {value} hosts, because the fault may be the network",
        "check the network and the power between the hosts, and bring their agents back; "
        "if the hosts are gone for good: sluice write-off HOST",
        ("SluiceBrake", "max(sluice_braked_hosts) > 0"),
        page="hosts",
    ),
    AlertKind(
        "host-lost",
        WARNING,
        60,
        "host {host} is lost: its agent does not answer",
        "the controller moves its units to other hosts that have room",
        "check the result in `sluice status`; bring the host or its agent back; "
        "if the host is gone for good: sluice write-off {host}",
        ("SluiceHostLost", 'sluice_host_state{state="lost"} == 1'),
        page="hosts/{host}",
    ),
    AlertKind(
        "host-quarantined",
        WARNING,
        0,
        "host {host} is in quarantine: units of several tenants died there, or a tier was starved there",
        "nothing new is placed there, until the quarantine ends by itself",
        "`sluice status` shows the reason; check disk, memory, kernel log and `top` of the host; "
        "`sluice drain {host}` moves the rest off, `sluice return {host}` uses the host again",
        ("SluiceHostQuarantined", "sluice_host_quarantined == 1"),
        page="hosts/{host}",
    ),
    AlertKind(
        "records-lost",
        CRITICAL,
        0,
        "input records of tier {tier} are lost",
        "the tier goes on",
        "list the records with `sluice audit`; they are still in their stream: reprocess them with "
        "`sluice replay {tier}`, then settle the loss with `sluice audit --settle NUMBER`",
        ("SluiceRecordsLost", "sluice_audit_lost == 1"),
        page="truth",
    ),
    AlertKind(
        "audit-stands-still",
        WARNING,
        300,
        "the audit has not checked tier {tier} for {value} s, so a loss would not be seen",
        "records flow",
        "find the reason with `sluice logs audit`, and restart the audit",
        ("SluiceAuditStandsStill", "time() - sluice_audit_last_look_timestamp_seconds > 120"),
        watched=False,
    ),
    AlertKind(
        "source-down",
        CRITICAL,
        30,
        "source {source} of stream {stream} on {host} is gone",
        "lines of its files wait there; clients of HTTP get no answer; what it wrote is in the stream once",
        "look at {host}: `systemctl status sluice-ingest@{source}`, and start the source again; an http "
        "source may start on another machine; if it shall not run any more: "
        "sluice ingest forget {source} --stream {stream}",
        ("SluiceSourceDown", "sluice_source_up == 0"),
    ),
    AlertKind(
        "source-failed",
        WARNING,
        0,
        "source {source} of stream {stream} on {host} failed",
        "another process continues after the last record that is in the stream; no record is lost",
        "read the log: `journalctl -u sluice-ingest@{source}`; if it fails again, check disk and memory "
        "of {host}",
    ),
    AlertKind(
        "source-stands-still",
        CRITICAL,
        30,
        "records wait for stream {stream}, and Kafka takes none of them",
        "its sources try again each second; files keep their lines, and clients of HTTP get 503",
        "run `sluice doctor`; if Kafka is well, read the log of the source named above",
        ("SluiceSourceStandsStill", "max by (stream) (sluice_source_stands_still) == 1"),
    ),
    AlertKind(
        "source-taken-over",
        WARNING,
        0,
        "another process has taken over source {source} of stream {stream} from {host}",
        "the process on {host} has ended and is not started again; the other one reads its own files",
        "`sluice status` shows the other process; if both shall run, give each a name of its own; "
        "otherwise: systemctl disable sluice-ingest@{source} on {host}",
        stops_reboots=False,
    ),
    AlertKind(
        "tier-given-up",
        CRITICAL,
        60,
        "tier {tier} failed five times in a row, and the controller no longer starts it",
        "its records wait in Kafka; Airflow's DAG tier_{tier} starts the tier again if it runs",
        "read the error above and the driver's log, remove the cause, then: sluice start {tier}",
        ("SluiceTierGivenUp", 'sluice_tier_state{state="failed"} == 1'),
        page="tiers/{tier}",
    ),
    AlertKind(
        "tier-down",
        CRITICAL,
        600,
        "tier {tier} should run and does not",
        "its records wait in Kafka, and the controller tries again",
        "`sluice status` shows the reason: no room, no executor, Kafka or PostgreSQL away, "
        "or a driver that fails at its start",
        ("SluiceTierDoesNotRun", 'sluice_tier_state{state=~"waiting|starting"} == 1'),
        page="tiers/{tier}",
    ),
    AlertKind(
        "driver-failed",
        WARNING,
        0,
        "a driver of tier {tier} failed",
        "the controller starts the tier again, with growing delays, and gives it up after five failures",
        "read the error above; if the code is the cause: sluice publish, then sluice upgrade {tier}",
        page="tiers/{tier}",
    ),
    AlertKind(
        "driver-hung",
        WARNING,
        0,
        "the driver of tier {tier} hung",
        "the driver was ended, and another incarnation runs the tier",
        "look at disk, memory and kernel log of the driver's host; if it hangs again: sluice drain HOST",
        page="tiers/{tier}",
    ),
    AlertKind(
        "process-hung",
        WARNING,
        0,
        "a {kind} on {host} hung",
        "the {kind} was ended, and another one replaced it",
        "`sluice logs {host}` names the process and how it hung; if the alert fires again, "
        "check disk, memory and kernel log of the host",
        ("SluiceHung", "increase(sluice_agent_hung_total[15m]) > 0"),
        page="hosts/{host}",
    ),
    AlertKind(
        "task-hangs",
        WARNING,
        120,
        "a task of tier {tier} has made no progress although input waits",
        "the executor is ended after the tier's `hangs_after`, and the query starts again",
        "`sluice status` shows the task; the driver's log shows where it hangs: correct the transform, "
        "or raise the tier's `hangs_after`",
        ("SluiceTaskHangs", "max by (tier) (sluice_tier_hung_seconds) > 0"),
        page="tiers/{tier}",
    ),
    AlertKind(
        "tier-starved",
        WARNING,
        600,
        "tier {tier} is starved of processor time",
        "`sluice status` says what Sluice does about it",
        "stop the other processes on the tier's hosts, which `top` shows there, "
        "or move the tier: sluice drift --repair",
        ("SluiceTierStarved", "sluice_tier_starved == 1"),
        page="tiers/{tier}",
        stops_reboots=False,
    ),
    AlertKind(
        "tier-lags",
        CRITICAL,
        120,
        "tier {tier} lags above the high watermark of its input",
        "the pipeline's entry takes only as many records as {tier} can process; the others wait in Kafka",
        "repair the system that {tier} writes to, or give it workers: sluice scale {tier} K (a light tier: a "
        "larger driver); "
        "`sluice pause {tier}` lets the other tiers run on",
        ("SluiceTierLags", "sluice_tier_behind == 1 unless on (tier) sluice_tier_may_lag == 1"),
        page="tiers/{tier}",
    ),
    AlertKind(
        "branch-lags",
        WARNING,
        600,
        "tier {tier}, which may lag, is above the high watermark of its input",
        "the other tiers flow; Kafka keeps the backlog of {tier} as long as it keeps records",
        "repair the system that {tier} writes to, or give it workers: sluice scale {tier} K (a light tier: a "
        "larger driver)",
        ("SluiceBranchLags", "sluice_tier_behind == 1 and on (tier) sluice_tier_may_lag == 1"),
        page="tiers/{tier}",
        stops_reboots=False,
    ),
    AlertKind(
        "backlog-expires",
        CRITICAL,
        60,
        "the oldest record that waits for tier {tier} has used more than half of its retention in Kafka",
        "{tier} goes on; after the retention, Kafka deletes records that {tier} has not processed",
        "repair the system that {tier} writes to, or give it workers; to gain time, raise `retention.ms` of "
        "its input stream with kafka-configs.sh",
        ("SluiceBacklogExpires", f"sluice_tier_retention_used_ratio >= {EXPIRY_PART}"),
        page="tiers/{tier}",
    ),
    AlertKind(
        "gap",
        WARNING,
        0,
        "tier {tier} wrote nothing for too long around its last handover or restart",
        "the tier runs; no record is lost by a gap",
        "look for busy processors at that time: hand over later, or add hosts; after a death, "
        "`sluice logs {tier}` shows its cause, and a standby shortens the gap",
        page="tiers/{tier}",
    ),
    AlertKind(
        "quarantine-grows",
        WARNING,
        600,
        "tier {tier} puts more than 1 % of its input into quarantine",
        "bad records wait in the quarantine stream; the others flow",
        "read the reasons in the quarantine stream; fix the code, publish, `sluice upgrade {tier}`, "
        "then: sluice replay {tier} --quarantine",
        (
            "SluiceManyBadRecords",
            (
                "sum by (tier) (rate(sluice_tier_records_quarantined_total[10m])) > "
                f"{QUARANTINE_PART} * sum by (tier) (rate(sluice_tier_records_in_total[10m]))"
            ),
        ),
        page="tiers/{tier}",
        stops_reboots=False,
    ),
    AlertKind(
        "standby-missing",
        WARNING,
        600,
        "tier {tier} has no standby that could take over",
        "the tier runs; a fault of its driver now leaves a gap, as without a standby",
        "`sluice tiers` says why; return a host, or add one: a standby needs other hosts than the tier",
        page="tiers/{tier}",
    ),
    AlertKind(
        "share-short",
        WARNING,
        900,
        "tier {tier} does not get its share",
        "the controller goes on trying; the tier runs with the workers that it has",
        "`sluice status` shows the reason; return a host, lower another share, or: sluice burst {tier} K",
        page="tiers/{tier}",
    ),
    AlertKind(
        "reclaim-late",
        WARNING,
        0,
        "a slot of batch came back later than `reclaim_seconds` of the site file",
        "the tier or change that needs the room waited, and goes on",
        "`sluice batch` lists the times; check the agent of the slot's host, or raise `reclaim_seconds`",
        ("SluiceReclaimLate", "increase(sluice_batch_reclaims_late_total[15m]) > 0"),
        stops_reboots=False,
    ),
    AlertKind(
        "change-failed",
        WARNING,
        0,
        "{what} failed (requested by {by})",
        "the change was undone: every tier goes on with the incarnation that ran",
        "remove the cause, then {again}",
    ),
    AlertKind(
        "change-refused",
        WARNING,
        0,
        "{what} was refused (requested by {by})",
        "nothing was changed",
        "remove the cause, then {again}",
        stops_reboots=False,
    ),
    AlertKind(
        "task-failed",
        WARNING,
        0,
        "{what} failed in Airflow",
        "{did}",
        "{do}",
    ),
    AlertKind(
        "instance-idle",
        WARNING,
        1800,
        "the EC2 instance {host} runs nothing and costs money",
        "nothing: the controller ends no instance",
        "hand over what is left and terminate the instances: sluice leave; orphans: sluice reap",
        page="hosts/{host}",
        stops_reboots=False,
    ),
    AlertKind(
        "certificate-ends",
        WARNING,
        0,
        "a certificate for ZooKeeper, Kafka or PostgreSQL ends in less than {value} days",
        "nothing: the platform renews no certificate",
        "renew the file above on every machine, then restart controllers and agents one after the other; "
        "a tier reads it when it is next handed over",
        stops_reboots=False,
    ),
    AlertKind(
        "token-ends",
        WARNING,
        0,
        "the token for {host}, which has not joined, ends at {value}",
        "nothing: after that, the token lets no machine join",
        "start the agent of {host} with its token before that, or make another one: "
        "sluice token {host}.token --host {host}",
        stops_reboots=False,
    ),
    AlertKind(
        "tier-stands-still",
        CRITICAL,
        300,
        "tier {tier} takes no records, although input waits",
        "records wait in Kafka",
        "read `sluice logs {tier}`; check the sink, too",
        (
            "SluiceTierStandsStill",
            (
                "sum by (tier) (sluice_tier_lag_records) > 0 and "
                "sum by (tier) (rate(sluice_tier_records_in_total[5m])) == 0 "
                "unless on (tier) sluice_tier_held == 1"
            ),
        ),
        watched=False,
    ),
    AlertKind(
        "figures-old",
        WARNING,
        0,
        "the driver of tier {tier} has measured no lag for {value} s",
        "the tier goes on",
        "Kafka does not answer the driver: run `sluice doctor`, then read "
        "`sluice logs {host}/driver-{tier}-{incarnation}`",
        ("SluiceFiguresAreOld", "time() - sluice_driver_last_look_timestamp_seconds > 60"),
        watched=False,
    ),
    AlertKind(
        "tier-falls-behind",
        WARNING,
        900,
        "tier {tier} lags by {value} records, and the lag grows",
        "records wait in Kafka",
        "add workers: `sluice scale {tier} K`, or on EC2 `sluice burst {tier} K` (a light tier: a larger "
        "driver)",
        (
            "SluiceTierFallsBehind",
            (
                "sum by (tier) (sluice_tier_lag_records) > 10000 and "
                "sum by (tier) (deriv(sluice_tier_lag_records[15m])) > 0 "
                "unless on (tier) sluice_tier_held == 1"
            ),
        ),
        watched=False,
    ),
    AlertKind(
        "late-records",
        WARNING,
        600,
        "more than 1 % of the input of tier {tier} is too late for its state, and is in no result",
        "`sluice audit` counts the records",
        "look for a sender that was away or has a wrong clock, and for a tier upstream that lags; "
        "else raise `State.lateness`",
        (
            "SluiceLateRecords",
            (
                "sum by (tier) (rate(sluice_tier_records_late_total[10m])) > "
                "0.01 * sum by (tier) (rate(sluice_tier_records_in_total[10m]))"
            ),
        ),
        watched=False,
    ),
    AlertKind(
        "query-fails",
        WARNING,
        0,
        "the query of tier {tier} failed three times in 15 minutes",
        "the driver restarts the query each time",
        "read the errors in `sluice logs {host}/driver-{tier}-{incarnation}`; "
        "`sluice slots` shows executors that died",
        ("SluiceQueryFails", "increase(sluice_tier_query_restarts_total[15m]) >= 3"),
        watched=False,
    ),
    AlertKind(
        "sink-does-not-take",
        CRITICAL,
        0,
        "the sink of tier {tier} takes no batches",
        "records wait in Kafka, and the tier retries",
        "check that PostgreSQL, or the service that the tier posts to, answers",
        ("SluiceSinkDoesNotTake", "increase(sluice_tier_sink_retries_total[5m]) >= 5"),
        watched=False,
    ),
    AlertKind(
        "units-missing",
        WARNING,
        600,
        "{value} units ({kind}) that should run do not run",
        "the agents try to start them",
        "`sluice slots` and `sluice tiers` show these units and how they ended",
        ("SluiceUnitsMissing", "sum by (kind) (sluice_units_wanted - sluice_units_running) > 0"),
        watched=False,
    ),
    AlertKind(
        "unit-near-its-memory",
        WARNING,
        600,
        "{unit} on {host} has nearly filled its memory",
        "the kernel kills the unit when its memory is full, and the agent starts it again",
        "raise `quantum.memory` (of a driver: `driver.memory`) of {tenant}, publish, then: "
        "sluice upgrade {tenant}",
        ("SluiceUnitNearItsMemory", "sluice_unit_memory_bytes / sluice_unit_memory_limit_bytes > 0.95"),
        watched=False,
    ),
    AlertKind(
        "slot-dies",
        WARNING,
        0,
        "{unit} on {host} has died three times in 15 minutes",
        "the agent starts it again each time",
        "`sluice slots` shows how the slot ended; if the host is the cause: sluice drain {host}",
        ("SluiceSlotDiesAgainAndAgain", "increase(sluice_unit_restarts_total[15m]) >= 3"),
        watched=False,
    ),
    AlertKind(
        "operation-takes-long",
        WARNING,
        1800,
        "an operation ({step}) has run for half an hour",
        "the controller goes on with it until its deadline",
        "`sluice operations` shows what the operation waits for; `sluice abort` undoes the change",
        ("SluiceOperationTakesLong", "sluice_operations_open > 0"),
        watched=False,
    ),
)

BY_NAME = {kind.name: kind for kind in ALERTS}
WATCHED = tuple(kind for kind in ALERTS if kind.watched)


def stops_reboots(kind: str) -> bool:
    """Tell whether alerts of a kind stop a rolling reboot; an unknown kind does."""
    return kind not in BY_NAME or BY_NAME[kind].stops_reboots


@cache
def rank(kind: str) -> int:
    """Return the place of a kind in the list; an unknown kind comes last."""
    names = [each.name for each in ALERTS]
    return names.index(kind) if kind in names else len(names)
