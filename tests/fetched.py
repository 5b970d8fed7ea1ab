"""Programs for tests from Maven Central: Ivy fetches each once into the project's cache."""

import hashlib
import subprocess
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sluice_ops.site import ivy, spark
from sluice_ops.site.jars import locked
from sluice_ops.site.java import JAVA
from sluice_ops.site.trust import truststore_options

IVY_MODULE = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="sluice" module="tests"/><configurations><conf name="program"/></configurations>
<dependencies><dependency org="{0.organisation}" name="{0.name}" rev="{0.revision}"
  conf="program->master" transitive="false">
<artifact name="{0.name}" type="{1}" ext="{1}"{2}/></dependency></dependencies>
</ivy-module>
"""


def fetch(lock: Path, folder: Path, extension: str = "jar", classifier: str | None = None) -> Path:
    """Copy the archive that a lock names into `folder`, check it, and return its path.

    The lock has one line, in the form of ops/sluice_ops/site/jars.lock.
    """
    (archive,) = locked(lock.read_text())
    more = "" if classifier is None else f" m:classifier={quoteattr(classifier)}"
    description, pattern = folder / "ivy.xml", f"{folder}/[artifact]-[revision].[ext]"
    description.write_text(IVY_MODULE.format(archive, extension, more))
    program_of_ivy = next((spark.home() / "jars").glob("ivy-*.jar"))
    words = ["-ivy", description, "-cache", ivy.cache(), "-retrieve", pattern]
    with ivy.cache_alone():
        trust = truststore_options(folder / "trusted.p12")
        subprocess.run([JAVA, *trust, "-jar", program_of_ivy, *words], check=True, capture_output=True)
    path = folder / f"{archive.name}-{archive.revision}.{extension}"
    with path.open("rb") as content:
        assert hashlib.file_digest(content, "sha256").hexdigest() == archive.sha256, f"{path} differs"
    return path
