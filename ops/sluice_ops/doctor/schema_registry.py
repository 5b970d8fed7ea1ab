"""Check that this machine reaches the schema registry of the site file."""

import http.client
import json
import urllib.request
from collections.abc import Iterator

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.site.site_file import Site

NAME = "registry"
SECONDS = 5.0
ADVICE = (
    "start the schema registry, open the network to it, or correct `schema_registry` in the site file; "
    "until then, records of a schema that an executor has not seen wait"
)


def check(site: Site) -> Iterator[Finding]:
    """Ask the registry for its subjects. Yield nothing if the site has no registry."""
    address = site.schema_registry
    if address is None:
        return
    try:
        with urllib.request.urlopen(f"{address}/subjects", timeout=SECONDS) as answer:  # noqa: S310 - Site checks it
            subjects = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield Finding(NAME, Verdict.BAD, f"{address} does not answer: {error}", ADVICE)
        return
    if isinstance(subjects, list):
        yield Finding(NAME, Verdict.OK, f"{address} answers; it has {len(subjects)} subjects")
    else:
        yield Finding(NAME, Verdict.BAD, f"{address} answers, but is no schema registry", ADVICE)
