"""An incarnation asks for exactly its own slots, and says plainly what fails."""

import psycopg
import pytest

from sluice.api import declarations
from sluice.driver.spark.session import settings
from sluice.failures import error_text
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, Placement


def chosen(home):
    spec = next(spec for spec in declarations.load("hits").specs() if spec.name == "enrich")
    place = Placement(driver=HostName("h1"), slots=(HostName("h1"), HostName("h2")))
    mine = IncarnationSpec(
        tier=TierName("enrich"), incarnation=Incarnation(7), placement=place, reason="test", created_at=0
    )
    return settings(spec, mine, "127.0.1.1", home)


def test_it_asks_for_its_label_and_as_many_cores_as_its_slots_have_threads(tmp_path):
    folder = tmp_path / "jars" / "connector"
    folder.mkdir(parents=True)
    (folder / "kafka.jar").touch()
    got = chosen(tmp_path)
    assert got["spark.cores.max"] == "8"
    assert got["spark.executor.cores"] == "4"
    assert got["spark.executor.resource.sluice_enrich_7.amount"] == "1"
    assert got["spark.task.resource.sluice_enrich_7.amount"] == "0.25"
    assert got["spark.driver.host"] == got["spark.driver.bindAddress"] == "127.0.1.1"
    assert got["spark.executor.extraClassPath"] == str(folder / "kafka.jar")


def test_without_the_connector_it_says_what_brings_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no jars; `make up` fetches"):
        chosen(tmp_path)


def test_a_python_error_inside_a_query_is_said_in_its_own_words():
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    boom()\nValueError: no such campaign'
    assert error_text(RuntimeError(f"Query stopped\n{trace}\n\n\tat java")) == "ValueError: no such campaign"


def test_javas_stack_is_left_out():
    assert (
        error_text(RuntimeError("it broke\n\tat org.Foo(Foo.java)\n\tat org.Bar(Bar.java)\n... 3 more"))
        == "RuntimeError: it broke"
    )


def test_our_own_errors_need_no_class_name():
    assert error_text(declarations.DeclarationError('tier "x": wrong')) == 'tier "x": wrong'


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            psycopg.errors.UndefinedColumn('column "lost" does not exist\nLINE 1'),
            'column "lost" does not exist',
        ),
        (
            psycopg.errors.InsufficientPrivilege("permission denied for table ledger"),
            "permission denied for table ledger",
        ),
    ],
)
def test_tables_of_another_version_are_told_with_the_way_out(error, said):
    assert (
        error_text(error) == f"PostgreSQL: {said}; tables or rights are not those of this version; "
        "run `python -m sluice.commands.publish`"
    )
