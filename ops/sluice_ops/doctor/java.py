"""Check that Sluice's Java runs. Both doctors use this check."""

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.site.installation import INSTALL_AGENT
from sluice_ops.site.java import JAVA, version


def check() -> Finding:
    """Start Java and report its version."""
    running = version()
    if running is None:
        return Finding(
            "java",
            Verdict.BAD,
            f"{JAVA} does not run",
            f"{INSTALL_AGENT}: Java is one of the packages",
        )
    return Finding("java", Verdict.OK, f"Java {running}: {JAVA}")
