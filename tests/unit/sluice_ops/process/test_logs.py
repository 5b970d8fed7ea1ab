"""The log of a long-running process has no secrets, and a JVM's own lines are told apart."""

import pytest
import structlog

from sluice_ops.process.logs import configure_logs, is_jvm_notice


@pytest.fixture
def log():
    yield structlog.get_logger()
    structlog.reset_defaults()


def connect(password):
    length = len(password)
    message = f"no answer to {length} characters"
    raise LookupError(message)


def test_a_traceback_names_no_values_of_variables(log, capsys):
    configure_logs()
    try:
        connect("secret" * 3)
    except LookupError:
        log.exception("the loop failed", host="h1")
    output = capsys.readouterr()
    assert output.out == ""
    first, *traceback = output.err.splitlines()
    assert first.endswith("[error    ] the loop failed                host=h1")
    assert traceback[-1] == "LookupError: no answer to 18 characters"
    assert "secretsecret" not in "".join(traceback)


def test_messages_of_a_jvm_about_its_cache_are_recognised():
    assert is_jvm_notice("AOTCache creation is complete: kafka.aot 79470592 bytes")
    assert not is_jvm_notice("java.io.IOException: No space left on device")


def test_notices_of_a_jvm_at_its_start_are_recognised():
    notices = [
        "NOTE: Picked up JDK_JAVA_OPTIONS:  --add-opens=java.base/java.nio=ALL-UNNAMED",
        "Picked up JAVA_TOOL_OPTIONS: -Xmx100m",
        "WARNING: Using incubator modules: jdk.incubator.vector",
    ]
    assert [line for line in notices if not is_jvm_notice(line)] == []
    assert not is_jvm_notice("WARNING: the disk is full")
    assert not is_jvm_notice("the hits Picked up JAVA_TOOL_OPTIONS: nothing")
