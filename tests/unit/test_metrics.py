"""The metrics that each kind of process exports, and how Prometheus finds the process."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from sluice.driver.counters import Flow
from sluice_ops.agent.units.reconcile import FoundUnit
from sluice_ops.channel import ChannelAwayError
from sluice_ops.controller.controller_metrics import ControllerMetrics
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exporter import Exporter, targets
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import State
from sluice_ops.process import metrics_server
from tests.simulation.memory import MemoryChannel
from tests.unit.example_metrics import agent_metrics, controller_metrics, driver_metrics, scraped
from tests.unit.sluice_ops.agent.test_reconcile import driver

DRIVER = Exporter(
    role=Role.DRIVER,
    address="127.0.0.1:0",
    host=HostName("h1"),
    tier=TierName("entry"),
    incarnation=Incarnation(4),
)


class Session(MemoryChannel):
    """The channel in memory, with a session that can end or lose its connection."""

    def __init__(self) -> None:
        super().__init__()
        self.session, self.connected, self.number = 1, True, 0
        self._set("/exporters/none", DRIVER)
        self.delete("/exporters/none")
        self.nodes["/exporters"] = ("", 0, None)

    def create(self, path: str, value: Any, **options: Any) -> bool:
        assert options == {"ephemeral": True, "sequence": True}
        self.number += 1
        return bool(super().create(f"{path}{self.number:010d}", value))

    def children(self, path: str, **watch: Any) -> list[str]:
        if not self.connected:
            raise ChannelAwayError
        return list(super().children(path, **watch))


def until(check: Callable[[], Any]) -> Any:
    end = time.monotonic() + 10
    while not (result := check()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return result


def get(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as response:
        return str(response.read().decode())


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(metrics_server, "LOOK_SECONDS", 0.05)
    return Session()


def announced(channel: Session) -> Exporter:
    (exporter,) = until(lambda: metrics_server.exporters(cast("Any", channel)))
    return cast("Exporter", exporter)


def test_a_process_announces_the_free_port_at_which_it_is_scraped(channel: Session) -> None:
    metrics_server.serve(cast("Any", channel), DRIVER, driver_metrics())
    exporter = announced(channel)
    assert exporter.address.startswith("127.0.0.1:")
    assert exporter.address != DRIVER.address
    assert exporter == DRIVER.model_copy(update={"address": exporter.address})
    metrics = get(exporter.address, "/metrics")
    assert 'sluice_tier_records_out_total{to="hits"} 8.0' in metrics
    assert "sluice_channel_connected 1.0" in metrics
    assert "process_cpu_seconds_total" in metrics
    labels = {"role": "driver", "host": "h1", "tier": "entry", "incarnation": "4"}
    assert json.loads(get(exporter.address, "/targets")) == [
        {"targets": [exporter.address], "labels": labels}
    ]


def test_an_exporter_is_announced_again_after_its_session_ended(channel: Session) -> None:
    metrics_server.serve(cast("Any", channel), DRIVER, driver_metrics())
    first = announced(channel)
    channel.delete("/exporters")
    channel.nodes["/exporters"] = ("", 0, None)
    channel.session = 2
    assert announced(channel) == first
    assert channel.number == 2


def test_nothing_is_announced_before_the_channel_has_its_tree(channel: Session) -> None:
    del channel.nodes["/exporters"]
    metrics_server.serve(cast("Any", channel), DRIVER, driver_metrics())
    time.sleep(0.3)
    assert channel.number == 0


def test_metrics_and_known_targets_are_served_without_zookeeper(
    channel: Session,
) -> None:
    metrics_server.serve(cast("Any", channel), DRIVER, driver_metrics())
    address = announced(channel).address
    channel.connected = False
    assert "sluice_channel_connected 0.0" in get(address, "/metrics")
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(address, "/targets")
    assert refused.value.code == 503
    refused.value.close()


def test_a_taken_port_is_logged_and_the_process_continues(channel: Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, capture_logs() as logs:
        taken = DRIVER.model_copy(update={"address": f"127.0.0.1:{listener.getsockname()[1]}"})
        metrics_server.serve(cast("Any", channel), taken, driver_metrics())
        until(lambda: logs)
    assert logs[0]["event"] == "the metrics server cannot start; the process continues without metrics"
    assert logs[0]["address"] == taken.address
    assert channel.number == 0


def test_targets_have_only_the_labels_that_distinguish_them() -> None:
    controller = Exporter(role=Role.CONTROLLER, address="127.0.0.1:9464", controller="c1")
    assert targets([controller]) == [
        {"targets": ["127.0.0.1:9464"], "labels": {"role": "controller", "controller": "c1"}}
    ]
    assert paths.exporter(Role.AGENT) == "/exporters/agent-"


def test_a_driver_exports_no_lag_while_it_does_not_own_the_tier() -> None:
    samples = scraped(driver_metrics(State.READY, Flow()))
    assert samples["sluice_driver_state", (("state", "ready"),)] == 1
    assert not any(name == "sluice_tier_lag_records" for name, _ in samples)
    assert "sluice_tier_last_output_timestamp_seconds" not in {name for name, _ in samples}


def test_the_latency_histogram_of_a_driver_adds_up() -> None:
    samples = scraped(driver_metrics())
    assert samples["sluice_tier_latency_seconds_bucket", (("le", "0.005"),)] == 1
    assert (
        samples["sluice_tier_latency_seconds_bucket", (("le", "+Inf"),)]
        == samples["sluice_tier_latency_seconds_count", ()]
        == 2
    )
    assert samples["sluice_tier_latency_seconds_sum", ()] == pytest.approx(0.204)


def test_an_agent_exports_units_by_kind_and_state_and_kernel_figures() -> None:
    samples = scraped(agent_metrics())
    assert samples["sluice_agent_units", (("kind", "slot"), ("state", "running"))] == 1
    unit = (("kind", "slot"), ("tenant", "entry"), ("unit", "slot-entry-1-0"))
    assert samples["sluice_unit_restarts_total", unit] == 2
    assert (samples["sluice_unit_memory_bytes", unit], samples["sluice_unit_memory_limit_bytes", unit]) == (
        800,
        1000,
    )
    assert samples["sluice_unit_cpu_seconds_total", unit] == 2.5
    assert sum(name == "sluice_unit_memory_bytes" for name, _ in samples) == 1, (
        "a unit without a control group has no samples"
    )
    ended = scraped(agent_metrics(FoundUnit(driver(), alive=False, others=0, started_at=1.0)))
    assert ended["sluice_agent_units", (("kind", "driver"), ("state", "exited"))] == 1


def test_a_leader_exports_its_view_of_the_cluster() -> None:
    samples = scraped(controller_metrics())
    assert (samples["sluice_controller_leader", ()], samples["sluice_controller_epoch", ()]) == (1, 3)
    assert samples["sluice_controller_pass_seconds_count", (("phase", "decide"),)] == 1
    assert samples["sluice_operations_total", (("outcome", "done"), ("step", "cut"))] == 1
    assert samples["sluice_operations_open", (("step", "verify"),)] == 1
    assert samples["sluice_changes_active", (("kind", "drain"),)] == 1
    assert samples["sluice_tier_state", (("state", "failed"), ("tier", "entry"))] == 1
    assert (
        samples["sluice_tier_failures", (("tier", "entry"),)],
        samples["sluice_tier_incarnation", (("tier", "entry"),)],
    ) == (5, 7)
    assert samples["sluice_host_state", (("host", "h2"), ("state", "lost"))] == 1
    kinds = {
        kind: [samples[f"sluice_units_{state}", (("kind", kind),)] for state in ("wanted", "running")]
        for kind in ("slot", "driver")
    }
    assert kinds == {"slot": [2, 1], "driver": [2, 0]}, "units of a lost host do not count as running"


def test_the_leader_exports_the_scalers_decision_about_each_tier() -> None:
    samples = scraped(controller_metrics())
    of_scaler = {key: value for key, value in samples.items() if key[0].startswith("sluice_scaler_")}
    assert of_scaler == {
        ("sluice_scaler_mode", (("mode", "advise"), ("tier", "entry"))): 1,
        ("sluice_scaler_slots", (("tier", "entry"),)): 2,
        ("sluice_scaler_wanted_slots", (("tier", "entry"),)): 4,
    }


def test_the_leader_exports_batch_jobs_and_their_slots() -> None:
    samples = scraped(controller_metrics())
    names = ("sluice_batch_jobs", "sluice_batch_slots")
    assert {key: value for key, value in samples.items() if key[0] in names} == {
        ("sluice_batch_jobs", (("state", "running"), ("tenant", "reports"))): 1,
        ("sluice_batch_jobs", (("state", "queued"), ("tenant", "reports"))): 1,
        ("sluice_batch_slots", (("tenant", "reports"),)): 2,
    }


def test_the_controller_exports_how_fast_slots_of_batch_went_back() -> None:
    samples = scraped(controller_metrics())
    counts = {
        dict(labels)["le"]: value for (name, labels), value in samples.items() if "reclaim_seconds_b" in name
    }
    assert (counts["2.5"], counts["5.0"], counts["60.0"], counts["90.0"]) == (0, 1, 1, 2)
    assert samples["sluice_batch_reclaims_late_total", ()] == 1


def test_a_standby_exports_no_leader_gauges_and_keeps_its_counters() -> None:
    collector = controller_metrics()
    collector.conflict()
    collector.stands_by()
    samples = scraped(collector)
    assert samples["sluice_controller_leader", ()] == 0
    assert samples["sluice_controller_conflicts_total", ()] == 1
    assert samples["sluice_operations_total", (("outcome", "done"), ("step", "cut"))] == 1
    assert not {name for name, _ in samples} & {
        "sluice_tier_state",
        "sluice_scaler_mode",
        "sluice_host_state",
        "sluice_units_wanted",
        "sluice_controller_epoch",
    }
    assert scraped(ControllerMetrics())["sluice_controller_leader", ()] == 0
