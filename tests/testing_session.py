"""Ends the local session of `sluice.testing`."""

from sluice import testing
from sluice.commands.validation import use_gateway


def end_session() -> None:
    """End the session and its JVM, so that other tests of this process may start their own."""
    session = testing.session()
    session.stop()
    session.sparkContext._gateway.shutdown()
    testing.session.cache_clear()
    jvm, before = testing._JVMS.pop()
    use_gateway(before)
    jvm.end(30.0)
