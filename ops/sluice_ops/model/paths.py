"""Where everything is in the channel, below the pipeline's chroot. One place, used by all."""

TRAIL = "/trail"
TRAIL_ROLES = ("controller", "operator", "publisher")
"""Below it: who adds to the trail."""
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
    *(f"{TRAIL}/{role}" for role in TRAIL_ROLES),
)

LAYERS = "/config/layers"
LOCK = "/changes/lock"
"""Holds the id of the change that has the maintenance lock; absent when nobody has it."""
LEADER = "/controller/leader"
EPOCH = "/controller/epoch"
LIVE, RECORD = "live", "record"
"""What may be below a host."""
CONTROLLER_STATUS = "/controller/status"
"""What the leader said last, for `sluice status`."""
REPORT = "report"
"""What is below an incarnation: what its driver says."""
SITE = "/controller/site"
"""What the leader goes by of the site file (`SiteSaid`)."""
HOLDS = "/holds"
"""When tiers were held back, and for whom (`Holds`)."""
RELEASES = "/releases"
JOINING = "/joining"
"""Below it, sealed, what waits for hosts that are to join (`Sealed`)."""
CLAIM, ANSWER = "claim", "answer"
"""What may be below the node of a host that joins."""
CONTROLLER_KEY = "/controller/key"
"""What is sealed to the controller is sealed to this (`ControllerKey`)."""
EXPORTERS = "/exporters"
"""Below it, where each process serves its figures."""


def wanted(tier: str) -> str:
    """What is wanted of a tier (`TierWanted`)."""
    return f"/config/wanted/{tier}"


def host(name: str) -> str:
    """A host's facts (`HostFacts`), written by its agent."""
    return f"/hosts/{name}"


def live(name: str) -> str:
    """The ephemeral node of a host's agent."""
    return f"/hosts/{name}/{LIVE}"


def host_record(name: str) -> str:
    """The controller's word on a host (`HostRecord`)."""
    return f"/hosts/{name}/{RECORD}"


def assignment(name: str) -> str:
    """What a host has to run (`Assignment`)."""
    return f"/assignments/{name}"


def observed(name: str) -> str:
    """What a host runs (`Observed`)."""
    return f"/observed/{name}"


def tier(name: str) -> str:
    """A tier's declaration (`TierSpec`)."""
    return f"/tiers/{name}"


def tier_of(path: str) -> str | None:
    """Return the tier that a path below `/tiers` belongs to."""
    root, _, rest = path[1:].partition("/")
    return rest.split("/", 1)[0] if root == "tiers" else None


def owner(name: str) -> str:
    """The fence (`OwnerRecord`)."""
    return f"/tiers/{name}/owner"


def loss(name: str) -> str:
    """What the audit found missing of a tier (`Loss`); absent when nothing is."""
    return f"/tiers/{name}/loss"


def incarnations(name: str) -> str:
    """All incarnations of a tier."""
    return f"/tiers/{name}/incarnations"


def incarnation(name: str, number: int) -> str:
    """One incarnation (`IncarnationSpec`)."""
    return f"/tiers/{name}/incarnations/{number}"


def report(name: str, number: int) -> str:
    """What the driver of an incarnation says (`IncarnationReport`)."""
    return f"/tiers/{name}/incarnations/{number}/{REPORT}"


def release(name: str) -> str:
    """What others rely on of a release (`Release`)."""
    return f"{RELEASES}/{name}"


def operation(identity: str) -> str:
    """A posted step (`Operation`)."""
    return f"/operations/{identity}"


def journal(identity: str) -> str:
    """The journal of a step: sequential children (`JournalEntry`)."""
    return f"/operations/{identity}/journal"


def result(identity: str) -> str:
    """How a step ended (`Result`)."""
    return f"/operations/{identity}/result"


def change(identity: str) -> str:
    """A change (`ChangeRecord`)."""
    return f"/changes/{identity}"


def exporter(role: str) -> str:
    """Where a process of this role serves its figures (`Exporter`); a number is added to tell it from others."""
    return f"{EXPORTERS}/{role}-"


def trail(role: str, name: str) -> str:
    """An entry of the trail (`Entry`), until the audit has moved it."""
    return f"{TRAIL}/{role}/{name}"


def joining(host: str) -> str:
    """What waits for a host that has a token (`Sealed`)."""
    return f"{JOINING}/{host}"


def claim(host: str) -> str:
    """Which machine uses the token of a host (`Claim`)."""
    return f"{JOINING}/{host}/{CLAIM}"


def answer(host: str) -> str:
    """What the controller gives that machine (`Answer`)."""
    return f"{JOINING}/{host}/{CLAIM}/{ANSWER}"


def joining_of(path: str) -> str | None:
    """Return the host whose token a path below `/joining` belongs to."""
    root, _, rest = path[1:].partition("/")
    return rest.split("/", 1)[0] if root == "joining" else None
