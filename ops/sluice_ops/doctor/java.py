"""Whether Java runs. A check of both doctors."""

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.site.java import JAVA, version


def look() -> Finding:
    """Tell whether Java runs."""
    found = version()
    if found is None:
        return Finding(
            "java",
            Verdict.BAD,
            f"{JAVA} does not run",
            "run `make install` in the folder that Sluice is in: it brings Java",
        )
    return Finding("java", Verdict.OK, f"Java {found}: {JAVA}")
