"""Check that Java runs and has the right version. Both doctors use this check."""

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.site.java import JAVA, fault, next_step, version


def check() -> Finding:
    """Start Java and report its version."""
    running = version()
    wrong = fault(running)
    if wrong is not None:
        return Finding("java", Verdict.BAD, wrong, next_step())
    return Finding("java", Verdict.OK, f"Java {running}: {JAVA}")
