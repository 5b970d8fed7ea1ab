"""Spark settings of an incarnation, which request exactly its own slots; and the texts of
errors.
"""

import psycopg
import pytest

from sluice.api import declarations
from sluice.api.spark_settings import problems
from sluice.driver.spark.session import LOCAL_FILES, RUNNING_TASKS, master_of, settings
from sluice.failures import error_text
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.site import spark


def spec_of_enrich(**more):
    return declarations.load("hits").spec("enrich").model_copy(update=more)


def settings_of_incarnation(home, **more):
    spec = spec_of_enrich(**more)
    placement = Placement(driver=HostName("h1"), slots=(HostName("h1"), HostName("h2")))
    incarnation = IncarnationSpec(
        tier=TierName("enrich"), incarnation=Incarnation(7), placement=placement, reason="test", created_at=0
    )
    return settings(spec, incarnation, "127.0.1.1", home)


def test_a_session_requests_its_label_and_the_threads_of_its_slots(tmp_path):
    folder = tmp_path / "jars" / "connector"
    folder.mkdir(parents=True)
    (folder / "kafka.jar").touch()
    session = settings_of_incarnation(tmp_path)
    assert "spark.cores.max" not in session, "a slot that is added later gets an executor, too"
    assert session["spark.executor.cores"] == "4"
    assert session["spark.executor.resource.sluice_enrich_7.amount"] == "1"
    assert session["spark.task.resource.sluice_enrich_7.amount"] == "0.25"
    assert session["spark.driver.host"] == session["spark.driver.bindAddress"] == "127.0.1.1"
    assert session["spark.executor.extraClassPath"] == str(folder / "kafka.jar")


def test_checkpoints_start_no_processes_where_the_home_has_the_class(tmp_path):
    folder = tmp_path / "jars" / "connector"
    folder.mkdir(parents=True)
    (folder / "kafka.jar").touch()
    assert not LOCAL_FILES.items() & settings_of_incarnation(tmp_path).items()
    spark.own_classes(tmp_path).parent.mkdir()
    spark.own_classes(tmp_path).touch()
    session = settings_of_incarnation(tmp_path)
    assert LOCAL_FILES.items() <= session.items()
    assert session["spark.executor.extraClassPath"].endswith(f":{spark.own_classes(tmp_path)}")


def test_a_light_tier_requests_no_executor_and_counts_its_tasks(tmp_path):
    folder = tmp_path / "jars" / "connector"
    folder.mkdir(parents=True)
    (folder / "kafka.jar").touch()
    with pytest.raises(FileNotFoundError, match="which a light tier needs; `sluice up` makes it"):
        settings_of_incarnation(tmp_path, light=True)
    spark.own_classes(tmp_path).parent.mkdir()
    spark.own_classes(tmp_path).touch()
    session = settings_of_incarnation(tmp_path, light=True)
    assert not [key for key in session if ".resource." in key or key.startswith("spark.executor.extra")]
    assert session["spark.plugins"] == RUNNING_TASKS
    assert "spark.plugins" not in settings_of_incarnation(tmp_path)
    light = spec_of_enrich(light=True, driver=Quantum(cpu=0.5, memory=900, threads=6))
    assert master_of(light, "spark://h1:7077") == "local[6,1]", "a realtime task is never tried again"
    assert master_of(light.model_copy(update={"outputs": ()}), "spark://h1:7077") == "local[6,4]"
    assert master_of(spec_of_enrich(), "spark://h1:7077") == "spark://h1:7077"


def test_a_tier_cannot_choose_what_the_session_sets(tmp_path):
    folder = tmp_path / "jars" / "connector"
    folder.mkdir(parents=True)
    (folder / "kafka.jar").touch()
    own = settings_of_incarnation(tmp_path) | LOCAL_FILES
    assert len(problems(own)) == len(own)
    assert problems({"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000"}), "the checkpoints' service"
    endpoint = "spark.hadoop.fs.s3a.bucket.lake.endpoint"
    chosen = {"spark.sql.ansi.enabled": "false", endpoint: "http://127.0.0.1:9000"}
    assert problems(chosen) == []


def test_a_missing_connector_is_reported_with_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no jars; `sluice up` fetches"):
        settings_of_incarnation(tmp_path)


def test_a_python_error_inside_a_query_keeps_its_own_text():
    trace = (
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    boom()\nValueError: '
        "no such campaign"
    )
    assert error_text(RuntimeError(f"Query stopped\n{trace}\n\n\tat java")) == "ValueError: no such campaign"


def test_a_python_error_that_passed_through_java_keeps_its_own_text():
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function.\n"
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        'Traceback (most recent call last):\n  File "clientserver.py", line 644, in _call_proxy\n'
        "    return_value = getattr(self.pool[obj_id], method)(*params)\n\n"
        "pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom\n\n"
        "JVM stacktrace:\norg.apache.spark.SparkRuntimeException"
    )
    assert error_text(RuntimeError(text)) == (
        "pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom"
    )


@pytest.mark.parametrize("end", ["", "\n", '\n  File "x.py", line 1, in f', "\n  ValueError: no"])
def test_a_traceback_without_its_error_gives_the_text(end):
    assert error_text(RuntimeError(f"boom: Traceback (most recent call last):{end}")).startswith(
        "RuntimeError: boom"
    )


def test_the_stack_of_java_is_left_out():
    assert (
        error_text(RuntimeError("it broke\n\tat org.Foo(Foo.java)\n\tat org.Bar(Bar.java)\n... 3 more"))
        == "RuntimeError: it broke"
    )


def test_errors_of_sluice_have_no_class_name():
    assert error_text(declarations.DeclarationError('tier "x": wrong')) == 'tier "x": wrong'


@pytest.mark.parametrize(
    ("error", "message"),
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
def test_tables_of_another_version_are_named_with_the_next_step(error, message):
    assert (
        error_text(error) == f"PostgreSQL: {message}; tables or rights are not those of this version; "
        "run `sluice publish`"
    )
