"""What drivers and executors have without a pipeline's lock: the packages of Sluice, and the jars
of Spark and Sluice.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sluice.api.declarations import DeclarationError
from sluice.dependencies.lock import Lock
from sluice_ops.site import spark
from sluice_ops.site.jars import LOCK, locked

SLUICE = "sluice-platform"
EXTRAS = frozenset({"agent", "delta"})
"""What a host of tiers has installed; Airflow's packages, for example, concern no driver."""
CLASS_PATH = frozenset({"connector", "s3"})
"""The folders of Sluice's own jars on the class path of drivers and executors."""
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")


def beyond(lock: Lock) -> Lock:
    """Return the lock without what drivers and executors have already.

    Raise DeclarationError if they have another version: a process loads one version only.
    """
    own, on_path = packages(), jars()
    problems = [
        *(
            f"{package.name}=={package.version}: Sluice's own code runs in the same process, with "
            f"{package.name}=={own[package.name]}; lock this version: write it into requirements.in"
            for package in lock.packages
            if _differs(own, package.name, package.version)
        ),
        *(
            f"{jar.organisation}:{jar.name}:{jar.revision}: version {on_path[jar.name]} comes first on the "
            "class path of drivers and executors; name this version, or leave the jar out"
            for jar in lock.jars
            if _differs(on_path, jar.name, jar.revision)
        ),
    ]
    if problems:
        raise DeclarationError("\n".join(problems))
    return Lock(
        tuple(package for package in lock.packages if package.name not in own),
        lock.options,
        tuple(jar for jar in lock.jars if jar.name not in on_path),
    )


def _differs(provided: Mapping[str, str], name: str, version: str) -> bool:
    return provided.get(name, version) != version


@cache
def packages() -> Mapping[str, str]:
    """Return name and version of Sluice and of all that it needs on a host of tiers."""
    versions: dict[str, str] = {}
    done, to_do = set[tuple[str, frozenset[str]]](), [(SLUICE, EXTRAS)]
    while to_do:
        name, extras = to_do.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:  # a package for other machines
            continue
        versions[name] = installed.version
        for requirement in map(Requirement, installed.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                to_do.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return versions


@cache
def jars() -> Mapping[str, str]:
    """Return name and version of the jars on the class path of drivers and executors."""
    files = (path.name for path in (spark.home() / "jars").glob("*.jar"))
    of_spark = {match["name"]: match["version"] for file in files if (match := _JAR.fullmatch(file))}
    of_sluice = {jar.name: jar.revision for jar in locked(LOCK.read_text()) if jar.folder in CLASS_PATH}
    return of_spark | of_sluice
