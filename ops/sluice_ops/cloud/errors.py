"""The errors of EC2, and what follows from each: the next pool, the next market, a retry, or a
refusal.
"""

from enum import StrEnum


class NextStep(StrEnum):
    """What a launch does after an error."""

    POOL = "pool"
    """Try the next instance type or zone: EC2 has no capacity here."""
    MARKET = "market"
    """Give up the spot market: no type or zone of it can be had."""
    RETRY = "retry"
    """Wait, and repeat the same request with the same client token."""
    REFUSE = "refuse"
    """Stop: the same request fails everywhere and at any time."""


NO_ANSWER = "no answer"
"""The code of a request that EC2 did not answer: whether it had an effect is unknown."""

_STEPS = {
    NextStep.POOL: (
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "Unsupported",  # the zone does not have the instance type
    ),
    NextStep.MARKET: ("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow"),
    NextStep.RETRY: (
        NO_ANSWER,
        "InternalError",
        "InternalFailure",
        "InvalidInstanceID.NotFound",  # EC2 tells of a new instance a moment after it is launched
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "Unavailable",
    ),
}
_STEP_OF_CODE = {code: step for step, codes in _STEPS.items() for code in codes}
NOT_PERMITTED = "UnauthorizedOperation"
"""The code of a request that the credentials do not permit."""
ACCOUNT_LIMITS = frozenset({"InstanceLimitExceeded", "VcpuLimitExceeded"})
"""Codes of requests above a limit of the AWS account."""


def next_step(code: str) -> NextStep:
    """Return what follows from an error code of EC2. An unknown code is a refusal."""
    return _STEP_OF_CODE.get(code, NextStep.REFUSE)


class CloudError(Exception):
    """EC2 refused a request; the message has EC2's reason."""

    def __init__(self, message: str, code: str = "") -> None:
        """Keep EC2's code beside the message."""
        super().__init__(message)
        self.code = code


class CloudAwayError(CloudError, ConnectionError):
    """EC2 does not answer, or asks to wait. Temporary: retry later."""


class QuotaError(CloudError):
    """The launch would exceed `ec2.max_instances`, or a limit of the AWS account."""


class NoCredentialsError(CloudError):
    """No credentials of AWS are on this machine, so it has launched nothing."""


class MayNotAskError(CloudError):
    """The credentials may not ask EC2 for instances, so this machine has launched none."""


class CapacityError(CloudError):
    """EC2 has no capacity for all instances in any pool of the site file. None was kept."""
