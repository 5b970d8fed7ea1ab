"""EC2 in memory, with as much capacity, throttling and silence as a test wants."""

from datetime import UTC, datetime

from sluice_ops.cloud.api import Api
from sluice_ops.cloud.ec2 import GONE, Cloud
from sluice_ops.cloud.errors import NO_ANSWER, CloudAwayError, CloudError
from sluice_ops.cloud.instance import Instance
from sluice_ops.site.ec2_config import Ec2Config
from sluice_ops.site.endpoints import Endpoints

ENDPOINTS = Endpoints(
    zookeeper="127.0.0.1:1/sluice/test",
    kafka="127.0.0.1:2",
    postgres="postgresql://127.0.0.1:3/sluice",
    airflow={"url": "http://127.0.0.1:4"},
    spark="spark://127.0.0.1:5",
    home="/nowhere",
)


def instance(identity, change="change", state="running", launched_at=0.0, market="on-demand"):
    """Return one instance."""
    return Instance(identity, state, change, "10.0.0.1", "m5.large", "eu-central-1a", market, launched_at)


class MemoryCloud(Cloud):
    """The instances of an installation, on an EC2 in memory."""

    def __init__(self, config=None, capacity=None):
        self.ec2 = MemoryEc2(capacity)
        super().__init__(ENDPOINTS, config or Ec2Config(), self.ec2)


class MemoryEc2(Api):
    """EC2 in memory. `capacity` is by (market, type, subnet); other pools have none."""

    def __init__(self, capacity=None):
        self.waited = []
        super().__init__(None, "eu-central-1", self.waited.append)
        self.capacity = {("on-demand", "m5.large", None): 1000} if capacity is None else capacity
        self.described = {}
        self.answers = {}
        """Client token → the answer to the first request with it."""
        self.asked = []
        """The pools that were asked, with the least and the most instances."""
        self.errors = []
        """The codes with which the next requests end; None: the request is carried out.

        After NO_ANSWER, the request was carried out all the same.
        """

    def call(self, action, *, service="ec2", tries=3, **request):  # noqa: ARG002
        code = self.errors.pop(0) if self.errors else None
        if code not in {None, NO_ANSWER}:
            raise CloudAwayError(code, code) if code == "RequestLimitExceeded" else CloudError(code, code)
        answer = getattr(self, f"_{action}")(**request)
        if code == NO_ANSWER:
            raise CloudAwayError(code, code)
        return answer

    def _describe_instances(self, Filters):  # noqa: ARG002, N803 - EC2's names
        return {"Reservations": [{"Instances": list(self.described.values())}]}

    def _terminate_instances(self, InstanceIds):  # noqa: N803
        for identity in InstanceIds:
            self.described[identity]["State"] = {"Name": "terminated"}

    def _run_instances(self, *, ClientToken, MinCount, MaxCount, InstanceType, TagSpecifications, **more):  # noqa: N803
        if ClientToken in self.answers:
            return self.answers[ClientToken]
        market = more.get("InstanceMarketOptions", {}).get("MarketType", "on-demand")
        pool = (market, InstanceType, more.get("SubnetId"))
        self.asked.append((*pool, MinCount, MaxCount))
        count = min(MaxCount, self.capacity.get(pool, 0))
        if count < MinCount:
            message = "no capacity"
            raise CloudError(message, "InsufficientInstanceCapacity")
        self.capacity[pool] -= count
        launched = [
            {
                "InstanceId": f"i-{len(self.described) + number:017x}",
                "State": {"Name": "pending"},
                "InstanceType": InstanceType,
                "Placement": {"AvailabilityZone": "eu-central-1a"},
                "LaunchTime": datetime(2026, 11, 25, tzinfo=UTC),
                "Tags": TagSpecifications[0]["Tags"],
                **({"InstanceLifecycle": "spot"} if market == "spot" else {}),
            }
            for number in range(count)
        ]
        self.described |= {each["InstanceId"]: each for each in launched}
        self.answers[ClientToken] = {"Instances": launched}
        return self.answers[ClientToken]

    @property
    def running(self):
        """The ids of the instances that have not ended."""
        return [name for name, each in self.described.items() if each["State"]["Name"] not in GONE]
