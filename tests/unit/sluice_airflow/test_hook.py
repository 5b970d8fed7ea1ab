"""The hook finds a pipeline's files by a connection, or without one by the environment."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice_airflow.hooks.sluice import ConnectionFieldError, SluiceHook
from sluice_airflow.links import DashboardLink, DriverLogLink, PageLink
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators.steps import StepOperator
from sluice_airflow.operators.tiers import LaunchTierOperator, SuperviseTierOperator
from sluice_ops.model.change import Step
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A pipeline `shop` with its own site file, which the connection `shop` names."""
    site, services = tmp_path / "site.yaml", tmp_path / "etc" / "endpoints.json"
    services.parent.mkdir()
    site.write_text((ROOT / "site.yaml").read_text())
    fields = {"site": str(site), "endpoints": str(services), "dashboard": "https://dash.example/shop"}

    def connect(**changed):
        extra = {key: value for key, value in {**fields, **changed}.items() if value is not None}
        connection = {"conn_type": "sluice", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(connection))

    connect()
    return SimpleNamespace(site=site, services=services, connect=connect)


def test_without_a_connection_the_environment_names_the_files(own_home):
    hook = SluiceHook()
    assert (hook.site_path, hook.endpoints_path) == (ROOT / "site.yaml", own_home / "endpoints.json")
    assert (hook.home, hook.dashboard) == (own_home, None)


def test_a_connection_names_the_files(shop):
    hook = SluiceHook("shop")
    assert (hook.site_path, hook.endpoints_path) == (shop.site, shop.services)
    assert hook.home == shop.services.parent
    assert hook.dashboard == "https://dash.example/shop"
    assert hook.site().pipeline == "hits"
    assert set(hook.tiers()) == {"entry", "enrich", "counts", "outbound"}


def test_the_published_tiers_are_those_of_the_connections_home(shop, tmp_path):
    spec = TierSpec(
        name="orders", kind=Kind.ENTRY, mode=Mode.BATCH, delivery=Delivery.AT_LEAST_ONCE, inputs=("raw",)
    )
    (tmp_path / "tiers.json").write_text(
        json.dumps([spec.model_dump(mode="json") | {"of": "a newer version"}])
    )
    shop.connect(home=str(tmp_path))
    hook = SluiceHook("shop")
    assert hook.tiers() == ("orders",)
    (orders,) = hook.published()
    assert (orders.inputs, orders.streams, orders.tables) == (("raw",), {}, {}), "an older version's file"
    (tmp_path / "tiers.json").write_text("[3]")
    assert hook.published() == ()
    assert "entry" in hook.tiers(), "without a usable file, the site file names the tiers"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"site": None}, "connection shop: the field 'site' is empty"),
        ({"site": None, "site_file": "/x"}, "'site' is empty; .* extra has: dashboard, endpoints, site_file"),
        ({"site": "site.yaml"}, "it takes an absolute path"),
    ],
)
def test_an_unusable_field_is_named(shop, changed, message):
    shop.connect(**changed)
    with pytest.raises(ConnectionFieldError, match=message):
        SluiceHook("shop").site()


def test_a_connection_of_another_type_is_refused(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "ssh", "host": "h1"}))
    with pytest.raises(ConnectionFieldError, match="takes connections of the type 'sluice'"):
        SluiceHook("shop").site()


def test_the_button_test_says_what_is_missing(shop):
    assert SluiceHook("shop").test_connection() == (
        False,
        f"{shop.services} does not exist: copy the site's endpoints file to this machine",
    )
    shop.site.write_text("pipeline: hits\nunknown: 1\n")
    tested, message = SluiceHook("shop").test_connection()
    assert (tested, "unknown" in message) == (False, True)


def test_a_task_sends_alerts_and_links_to_its_own_pipeline(shop):
    task = StepOperator(
        task_id="drain",
        step=Step.PREFLIGHT,
        change={"kind": "drain", "host": "h1"},
        sluice_conn_id="shop",
        on_failure_callback=SluiceNotifier(did="", do=""),
    )
    (notifier,) = task.on_failure_callback
    assert notifier.sluice_conn_id == "shop"
    assert PageLink().get_link(task, ti_key=None).endswith("/plugin/sluice?connection=shop")
    assert DashboardLink().get_link(task, ti_key=None) == "https://dash.example/shop"
    alone = StepOperator(task_id="drain", step=Step.PREFLIGHT, change={"kind": "drain", "host": "h1"})
    assert PageLink().get_link(alone, ti_key=None).endswith("/plugin/sluice")
    assert DashboardLink().get_link(alone, ti_key=None) == ""
    assert shop.site.exists()


def test_the_tasks_of_a_tier_link_to_its_drivers_log(shop):
    assert shop.site.exists()
    for operator in (LaunchTierOperator, SuperviseTierOperator):
        task = operator(task_id="task", tier="entry", sluice_conn_id="shop")
        links = {link.name: link.get_link(task, ti_key=None) for link in task.operator_extra_links}
        assert links.keys() == {"Sluice", "Dashboard", "Driver log"}
        assert links["Driver log"].endswith("/plugin/sluice/logs/entry?connection=shop")
    alone = SuperviseTierOperator(task_id="supervise", tier="entry")
    assert DriverLogLink().get_link(alone, ti_key=None).endswith("/plugin/sluice/logs/entry")
