"""Burst to EC2 and leave again, against moto's EC2 server: no instance is left over, whatever
fails.
"""

import contextlib
import json
import threading
import time
from types import SimpleNamespace

import pytest
from airflow.api.common.mark_tasks import set_dag_run_state_to_failed
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState
from moto.server import ThreadedMotoServer

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.cloud import ec2
from sluice_ops.cloud.errors import CloudError
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.change import Step
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Placement
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec
from tests.integration.sluice_airflow.conftest import ROOT, free_port
from tests.integration.sluice_airflow.controller import AnsweringController

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]
"""Airflow itself emits warnings."""

TIER = TierName("enrich")


@pytest.fixture(scope="module")
def cloud():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server._port}"
    server.stop()


@pytest.fixture
def site(cloud, zookeeper, tmp_path):
    """Publish the tier, and name this test's EC2 server in the endpoints."""
    path = tmp_path / "endpoints.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ec2": cloud}))
    with Channel(zookeeper) as channel:
        spec = TierSpec(
            name=TIER,
            kind=Kind.PROCESSING,
            mode=Mode.REALTIME,
            delivery=Delivery.AT_LEAST_ONCE,
            inputs=("hits",),
        )
        channel.put(paths.tier(TIER), spec)
        yield SimpleNamespace(zookeeper=zookeeper, channel=channel, home=tmp_path)
        ec2.the_cloud().terminate([instance.id for instance in ec2.the_cloud().instances()])


@pytest.fixture
def agents(site):
    """Register the host of every instance, as its agent would."""
    halt = threading.Event()

    def register():
        with Channel(site.zookeeper) as channel:
            while not halt.wait(0.2):
                with contextlib.suppress(ChannelAwayError, CloudError):
                    for instance in ec2.the_cloud().instances():
                        facts = HostFacts(
                            name=instance.host, address="127.0.2.1", zone="ec2", cpu=4, memory=4096
                        )
                        channel.create(paths.live(instance.host), facts, ephemeral=True)

    thread = threading.Thread(target=register)
    thread.start()
    yield
    halt.set()
    thread.join()


@pytest.fixture(scope="module")
def dags(database):  # noqa: ARG001
    return DagBag(str(ROOT / "dags")).dags


def run(dag, **conf):
    with contextlib.suppress(Exception):
        return dag.test(run_conf=conf)
    return None


def test_a_burst_launches_an_instance_and_leaving_terminates_it(site, agents, dags):  # noqa: ARG001
    with AnsweringController(site.zookeeper) as controller:
        done = run(dags["burst_to_ec2"], tier=TIER, k=1)
        assert done.state == DagRunState.SUCCESS
        (instance,) = ec2.the_cloud().instances()
        assert instance.token == controller.posted[0].change
        assert run(dags["leave_ec2"]).state == DagRunState.SUCCESS
    assert ec2.the_cloud().instances() == []
    moves = ["preflight", "prepare", "cut", "verify", "release"]
    assert controller.steps() == ["approval", *moves, *moves]


@pytest.mark.long
def test_a_burst_whose_handover_fails_leaves_no_instance(site, agents, dags):  # noqa: ARG001
    with AnsweringController(
        site.zookeeper, fails={Step.PREPARE: "no worker registered within 60 s"}
    ) as controller:
        run(dags["burst_to_ec2"], tier=TIER, k=1)
    assert controller.steps() == ["approval", "preflight", "prepare", "abort"]
    assert ec2.the_cloud().instances() == []
    assert [path.name.split(".")[-3] for path in (site.home / "alerts").iterdir()] == ["prepare"]


def test_a_burst_beyond_the_sites_limit_launches_nothing(site, dags):
    with AnsweringController(site.zookeeper) as controller:
        run(dags["burst_to_ec2"], tier=TIER, k=100)
    assert ec2.the_cloud().instances() == []
    assert set(controller.steps()) <= {"abort"}
    (alert,) = (site.home / "alerts").iterdir()
    assert "ec2.max_instances is 3" in alert.read_text()


def mark_failed(dag, step, controller):
    """Mark the run failed, as Airflow's API does, while `step` is at work.

    The task continues for a moment, as a real one does.
    """
    while step not in controller.steps():
        time.sleep(0.05)
    (dag_run,) = DagRun.find(dag_id=dag.dag_id, state=DagRunState.RUNNING)
    scheduler_dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    set_dag_run_state_to_failed(dag=scheduler_dag, run_id=dag_run.run_id, commit=True)


@pytest.mark.long
@pytest.mark.parametrize("fails", [{}, {Step.PREPARE: "the step was aborted"}])
def test_a_burst_marked_failed_is_undone_and_leaves_no_instance(site, agents, dags, fails):  # noqa: ARG001
    dag = dags["burst_to_ec2"]
    before = {dag_run.run_id for dag_run in DagRun.find(dag_id=dag.dag_id)}
    with AnsweringController(site.zookeeper, seconds={Step.PREPARE: 5.0}, fails=fails) as controller:
        person = threading.Thread(target=mark_failed, args=(dag, "prepare", controller))
        person.start()
        run(dag, tier=TIER, k=1)
        person.join()
    assert controller.steps() == ["approval", "preflight", "prepare", "abort"]
    assert ec2.the_cloud().instances() == []
    (ended,) = [dag_run for dag_run in DagRun.find(dag_id=dag.dag_id) if dag_run.run_id not in before]
    assert ended.state == DagRunState.FAILED
    alerts = site.home / "alerts"
    assert not alerts.exists() or [path.name.split(".")[-3] for path in alerts.iterdir()] == ["prepare"]


@pytest.mark.long
def test_an_instance_that_a_tier_runs_on_is_not_terminated(site, agents, dags):  # noqa: ARG001
    (instance,) = ec2.the_cloud().launch("someone", 1, print)
    identity, host = instance.id, instance.host
    placed = IncarnationSpec(
        tier=TIER,
        incarnation=Incarnation(1),
        placement=Placement(driver=host, slots=(host,)),
        reason="burst",
        created_at=0,
    )
    site.channel.put(paths.incarnation(TIER, 1), placed)
    site.channel.put(paths.owner(TIER), OwnerRecord(owner=Incarnation(1)))
    with AnsweringController(site.zookeeper):
        run(dags["leave_ec2"])
    assert [instance.id for instance in ec2.the_cloud().instances()] == [identity]
    (alert,) = (site.home / "alerts").iterdir()
    assert f"tier enrich runs on {host}" in alert.read_text()
