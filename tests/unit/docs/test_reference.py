"""The reference is complete: each key, command, class, table and node is on its page, described."""

import re
from dataclasses import replace

import pytest
import typer

import sluice
from docs.site.reference import PAGES, airflow, command_line, pipeline, postgresql, site_file, text, zookeeper
from sluice.api.own_tables import OWN_TABLES
from sluice.commands.tables import RIGHTS
from sluice_ops.main import app
from sluice_ops.model import paths
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.site.site_file import Site


def test_each_key_of_the_site_file_is_described() -> None:
    page = site_file.page()
    for path, model in site_file.models(Site):
        for name, _, description in site_file.fields(model):
            key = f"{path}.{name}" if path else name
            assert description, f"{key} has no docstring in {model.__name__}"
            assert f"### `{key}`\n" in page


def test_a_key_is_shown_with_type_bounds_and_default() -> None:
    page = site_file.page()
    assert "### `pipeline`\n\n*text, required*" in page
    assert "### `partitions`\n\n*whole number, at least 1, at most 1000, default `4`*" in page
    assert "### `reboot`\n\n*list of: text, length at least 1, default `[systemctl, reboot]`*" in page
    assert "### `scaler.defaults.mode`\n\n*`off` or `advise` or `act`, default `advise`*" in page
    assert "### `scaler.tiers.NAME.utilisation`\n\n*number, more than 0, less than 1, default `0.7`*" in page
    assert "### `hosts[].cores`\n\n*`shared` or `own`*" in page
    assert "### `shifts.NAME.shares.NAME.target`" in page


def test_each_command_is_on_the_page_with_its_options() -> None:
    page = command_line.page()
    commands = typer.main.get_command(app).commands
    sections = {part.partition("`")[0]: part for part in page.split("\n## `sluice ")[1:]}
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        assert all(
            option in sections[name] for each in command.params for option in each.opts if "-" in option
        )
    assert "    sluice drain HOST [OPTIONS]\n" in sections["drain"]
    assert "    sluice upgrade enrich\n    sluice upgrade enrich --release" in sections["upgrade"]


def test_each_class_of_the_provider_is_on_the_page_with_its_arguments() -> None:
    page = airflow.page()
    classes = {node.name for _, node in airflow.classes()}
    made = {kind.operator for kind in KINDS.values() if kind.runbook}
    assert {
        "StepOperator",
        "SluiceBatchOperator",
        "SluiceHook",
        "SluiceNotifier",
        "HourCompleteSensor",
    } < classes
    assert {"SluiceDrainHostOperator", "SluiceScaleTierOperator"} < made
    sections = {part.partition("`")[0]: part for part in page.split("\n### `")[1:]}
    assert classes | made <= sections.keys()
    assert [name for name in classes | made if f"```python\n{name}(" not in sections[name]] == []
    assert "BatchGrantTrigger(job: str, until: float, sluice_conn_id: str | None=None)" in page
    assert "BeginShiftOperator(*, step: Step, change: dict[str, Any], **kwargs: Any)" in page
    assert "WaitForHostOperator(*, sluice_conn_id: str | None=None, **kwargs: Any)" in page
    assert "### `HOUR_COMPLETE`" in page


def test_an_operator_of_a_change_is_described_with_each_field() -> None:
    page = airflow.page()
    sections = {part.partition("`")[0]: part for part in page.split("\n### `")[1:]}
    for kind in (kind for kind in KINDS.values() if kind.runbook):
        section = sections[kind.operator]
        assert f"from sluice_airflow.operators.changes import {kind.operator}" in section
        assert [field.name for field in kind.fields if f"| `{field.name}` | " not in section] == []
    assert "SluiceDrainHostOperator(*, host: str, deadline: float = 900, **kwargs)" in page
    assert "workers: list[str] | None = None" in sections["SluicePausePipelineOperator"]


def test_each_public_name_of_the_package_is_on_the_page() -> None:
    page = pipeline.page()
    names = [name for group in pipeline.GROUPS.values() for name in group]
    assert sorted(names) == sorted(sluice.__all__)
    sections = {part.partition("`")[0]: part for part in page.split("\n### `")[1:]}
    assert sections.keys() == {*names}
    assert "    columns: dict[str, str],\n    stamp: str = 'written_at',\n" in sections["Once"]
    assert "    spark: Mapping[str, str] = dict(),\n    quantum: Quantum = Quantum(),\n" in sections["Tier"]
    assert "Quantum(\n    *,\n    cpu: float = 1.0,\n    memory: int | str = 1024,\n" in sections["Quantum"]
    assert "Lag(*, records: int, seconds: float)" in sections["Lag"]
    assert "Fields(*columns: str)" in sections["Fields"]
    assert "| `Standby.HOT` | A second incarnation runs beside" in sections["Standby"]
    assert "def pause() -> None" in sections["Hooks"]
    assert "within: tuple[int, int], how: Literal['inner', 'left', 'right']" in sections["joined"]
    assert "transactional" not in sections["Post"], "a class attribute is no argument"


def test_the_example_of_the_package_is_a_valid_pipeline() -> None:
    made: dict[str, object] = {}
    exec(pipeline.EXAMPLE, made)  # noqa: S102 - the page's own code
    orders = made["ORDERS"]
    assert isinstance(orders, sluice.Stream)
    tier = made["list_tier"]
    assert isinstance(tier, sluice.Tier)
    entry = replace(tier, name="entry", kind=sluice.Kind.ENTRY, inputs=(sluice.Stream("raw"),), sink=None)
    entry = replace(entry, outputs=(orders,), delivery=sluice.Delivery.AT_LEAST_ONCE)
    assert sluice.Pipeline((entry, tier)).tier("list").quantum.memory == 750


def test_each_node_of_the_channel_is_described() -> None:
    nodes = dict(zookeeper.nodes())
    assert {paths.LOCK, "/tiers/<name>/owner", "/operations/<identity>/result"} <= nodes.keys()
    assert [path for path, description in nodes.items() if not description] == []
    rows = zookeeper.page()
    assert "| `/tiers/<name>/incarnations/<number>/report` |" in rows
    assert re.search(r"\| `/trail/<role>/<name>` \| [^|]* \| controller, operator, publisher \|", rows)


def test_each_table_has_a_purpose_and_its_rights() -> None:
    tables = postgresql.tables()
    assert {name: described.purpose for name, described in tables.items()} == OWN_TABLES
    assert {name for name in RIGHTS if not name.endswith("_seq")} <= tables.keys()


def test_a_table_has_the_columns_of_all_its_migrations() -> None:
    ledger = postgresql.tables()["ledger"]
    assert ledger.key == "tier, batch"
    assert ledger.columns["rows_in"] == "bigint NOT NULL"
    assert {"late", "written", "lost", "replay", "with_epochs", "watermark"} <= ledger.columns.keys()
    marks = postgresql.tables()["marks"]
    assert marks.columns["position"] == "bigint[] NOT NULL"
    assert not {"offset", "index"} & marks.columns.keys()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_begins_with_a_question(name: str) -> None:
    assert re.match(r"# .*\?\n\n\S", PAGES[name]())


def test_cells_keep_their_table_whole() -> None:
    assert text.cell("a | b\n<name> `<name>`") == r"a \| b &lt;name> `<name>`"
