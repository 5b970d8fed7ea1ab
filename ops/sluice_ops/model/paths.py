"""The paths of all nodes in the channel, below the pipeline's chroot.

Each function returns the path of the node that its docstring names.
"""

TRAIL = "/trail"
"""The parent of the entries of the trail."""
TRAIL_ROLES = ("controller", "operator", "publisher")
"""The roles that add to the trail, each below its own node."""
ROOTS = (
    "/config/wanted",
    "/hosts",
    "/assignments",
    "/observed",
    "/tiers",
    "/operations",
    "/changes",
    "/controller/leader",
    "/exporters",
    "/releases",
    "/joining",
    "/instances",
    "/batch/jobs",
    "/reboots",
    "/upgrades",
    "/drains",
    "/decommissioned",
    "/sources",
    *(f"{TRAIL}/{role}" for role in TRAIL_ROLES),
)

LAYERS = "/config/layers"
"""The numbers of shares above the site file (`Layers`)."""
LOCK = "/changes/lock"
"""Holds the id of the change that has the maintenance lock. Absent while no change has it."""
LEADER = "/controller/leader"
"""The parent of the controllers' nodes, from which the leader is elected."""
EPOCH = "/controller/epoch"
"""The number of the present leader."""
LIVE, RECORD, LOGS = "live", "record", "logs"
"""The children of a host's node. A source has the first one, too."""
CONTROLLER_STATUS = "/controller/status"
"""The leader's last status (`ControllerStatus`), for `sluice status`."""
REPORT = "report"
"""The child of an incarnation's node with its driver's report."""
SITE = "/controller/site"
"""The settings of the site file that the leader uses (`SiteSaid`)."""
SCALER = "/scaler"
"""The scaler's last decisions (`ScalerRecord`)."""
SCALER_MEMORY = "/scaler/memory"
"""What the scaler knows from earlier plans (`Memory`)."""
SCALER_MODES = "/config/scaler"
"""The modes of the scaler that people have set (`ScalerModes`)."""
ALERTS = "/alerts"
"""The alerts of the site, and the messages to be sent (`AlertRecord`)."""
ALERT_REQUESTS = "/config/alerts"
"""Silences, and the last test that a person requested (`AlertRequests`)."""
HOLDS = "/holds"
"""The last times that tiers were throttled (`Holds`)."""
BATCH_JOBS = "/batch/jobs"
"""The parent of the requests of batch jobs."""
BATCH_GRANTS = "/batch/grants"
"""How the slots of `batch` are divided among jobs (`BatchGrants`)."""
BATCH_RECLAIMS = "/batch/reclaims"
"""How long tiers waited for slots of `batch` (`Reclaims`)."""
RELEASES = "/releases"
"""The parent of all releases."""
JOINING = "/joining"
"""The parent of the sealed data for hosts that will join (`Sealed`)."""
INSTANCES = "/instances"
"""The parent of the receipts of EC2 instances."""
REBOOTS = "/reboots"
"""The parent of the rolling reboots."""
UPGRADES = "/upgrades"
"""The parent of `PIPELINE_UPGRADE`."""
PIPELINE_UPGRADE = f"{UPGRADES}/pipeline"
"""The last upgrade of the whole pipeline (`PipelineUpgrade`)."""
DRAINS = "/drains"
"""The parent of `PIPELINE_DRAIN`."""
PIPELINE_DRAIN = f"{DRAINS}/pipeline"
"""The last drain to empty (`PipelineDrain`), with its receipt."""
DECOMMISSIONED = "/decommissioned"
"""The parent of the hosts that were taken out of service for good."""
CONTROLLER_LOGS = "/controller/logs"
"""The parent of the requests for lines of a controller's log."""
APPROVAL = "approval"
"""The child of a change's node with another person's answer."""
CLAIM, ANSWER = "claim", "answer"
"""The descendants of the node of a host that joins."""
CONTROLLER_KEY = "/controller/key"
"""The key to which data for the controller is sealed (`ControllerKey`)."""
SOURCES = "/sources"
"""The parent of the sources of records from outside."""
TAKEN = "taken"
"""The child of a source's node that an earlier owner of its name leaves."""
EXPORTERS = "/exporters"
"""The parent of the nodes that tell where each process serves its metrics."""


def wanted(tier: str) -> str:
    """The wanted state of a tier (`TierWanted`)."""
    return f"/config/wanted/{tier}"


def host(name: str) -> str:
    """A host's facts (`HostFacts`), written by its agent."""
    return f"/hosts/{name}"


def live(name: str) -> str:
    """The ephemeral node of a host's agent."""
    return f"/hosts/{name}/{LIVE}"


def host_record(name: str) -> str:
    """The controller's record of a host (`HostRecord`)."""
    return f"/hosts/{name}/{RECORD}"


def host_logs(name: str) -> str:
    """The parent of the requests for lines of a host's logs, and of the answers."""
    return f"/hosts/{name}/{LOGS}"


def host_log_request(name: str, request: str) -> str:
    """A request for lines of a host's logs (`LogRequest`), beside its answer (`LogAnswer`)."""
    return f"/hosts/{name}/{LOGS}/{request}"


def controller_log_request(request: str) -> str:
    """A request for lines of a controller's log (`LogRequest`)."""
    return f"{CONTROLLER_LOGS}/{request}"


def assignment(name: str) -> str:
    """The units that a host has to run (`Assignment`)."""
    return f"/assignments/{name}"


def observed(name: str) -> str:
    """The units that a host runs (`Observed`)."""
    return f"/observed/{name}"


def tier(name: str) -> str:
    """A tier's declaration (`TierSpec`)."""
    return f"/tiers/{name}"


def tier_of(path: str) -> str | None:
    """Return the tier of a path below `/tiers`; None for other paths."""
    root, _, rest = path[1:].partition("/")
    return rest.split("/", 1)[0] if root == "tiers" else None


def owner(name: str) -> str:
    """The owner record of a tier, which is the fence (`OwnerRecord`)."""
    return f"/tiers/{name}/owner"


def loss(name: str) -> str:
    """The records that the audit found missing (`Loss`). Absent while none are missing."""
    return f"/tiers/{name}/loss"


def incarnations(name: str) -> str:
    """The parent of all incarnations of a tier."""
    return f"/tiers/{name}/incarnations"


def incarnation(name: str, number: int) -> str:
    """One incarnation (`IncarnationSpec`)."""
    return f"/tiers/{name}/incarnations/{number}"


def report(name: str, number: int) -> str:
    """The report of an incarnation's driver (`IncarnationReport`)."""
    return f"/tiers/{name}/incarnations/{number}/{REPORT}"


def load(name: str, number: int) -> str:
    """The load of an incarnation's tier (`TierLoad`)."""
    return f"/tiers/{name}/incarnations/{number}/load"


def release(name: str) -> str:
    """The description of a release (`Release`)."""
    return f"{RELEASES}/{name}"


def operation(identity: str) -> str:
    """A posted step (`Operation`)."""
    return f"/operations/{identity}"


def journal(identity: str) -> str:
    """The journal of a step: sequential children (`JournalEntry`)."""
    return f"/operations/{identity}/journal"


def result(identity: str) -> str:
    """The result of a step (`Result`)."""
    return f"/operations/{identity}/result"


def change(identity: str) -> str:
    """A change (`ChangeRecord`)."""
    return f"/changes/{identity}"


def approval(identity: str) -> str:
    """The answer of another person to a change that waits for approval (`Answer`)."""
    return f"/changes/{identity}/{APPROVAL}"


def exporter(role: str) -> str:
    """The prefix of the nodes of a role's processes that serve metrics (`Exporter`).

    ZooKeeper appends a number.
    """
    return f"{EXPORTERS}/{role}-"


def source(identity: str) -> str:
    """A source of records from outside (`SourceRecord`)."""
    return f"{SOURCES}/{identity}"


def source_live(identity: str) -> str:
    """The ephemeral node of a source's process (`SourceFigures`)."""
    return f"{SOURCES}/{identity}/{LIVE}"


def source_taken(identity: str) -> str:
    """The message of a process whose source was taken over (`TakenOver`)."""
    return f"{SOURCES}/{identity}/{TAKEN}"


def trail(role: str, name: str) -> str:
    """An entry of the trail (`Entry`), until the audit moves it to PostgreSQL."""
    return f"{TRAIL}/{role}/{name}"


def instance(identity: str) -> str:
    """The receipt of an EC2 instance (`InstanceReceipt`)."""
    return f"{INSTANCES}/{identity}"


def batch_job(identity: str) -> str:
    """The request of a batch job (`BatchRequest`)."""
    return f"{BATCH_JOBS}/{identity}"


def rolling_reboot(place: str) -> str:
    """The last rolling reboot of the hosts at a place (`RollingReboot`)."""
    return f"{REBOOTS}/{place}"


def decommissioned(host: str) -> str:
    """A host that was taken out of service for good (`Decommissioned`)."""
    return f"{DECOMMISSIONED}/{host}"


def joining(host: str) -> str:
    """The sealed data for a host that has a token (`Sealed`)."""
    return f"{JOINING}/{host}"


def claim(host: str) -> str:
    """The claim of the machine that uses the token of a host (`Claim`)."""
    return f"{JOINING}/{host}/{CLAIM}"


def answer(host: str) -> str:
    """The controller's answer to a claim (`Answer`)."""
    return f"{JOINING}/{host}/{CLAIM}/{ANSWER}"


def joining_of(path: str) -> str | None:
    """Return the host of a path below `/joining`; None for other paths."""
    root, _, rest = path[1:].partition("/")
    return rest.split("/", 1)[0] if root == "joining" else None
