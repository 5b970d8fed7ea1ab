"""Wheels and jars that tests make themselves, so that no registry is needed."""

import hashlib
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from sluice_ops.site import spark
from sluice_ops.site.java import JAVA

IVY = """<ivy-module version="2.0"><info organisation="{0}" module="{1}" revision="{2}"/>
<configurations><conf name="master"/></configurations>
<publications><artifact name="{1}" type="jar" ext="jar" conf="master"/></publications></ivy-module>
"""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    headers: str = "",
    tag: str = "py3-none-any",
) -> str:
    """Make a wheel with further lines in its METADATA, and return the line that locks it."""
    own = f"{name}-{version}.dist-info"
    purelib = "true" if tag.endswith("-any") else "false"
    contents = {
        **files,
        f"{own}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{headers}",
        f"{own}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in (*contents, f"{own}/RECORD"))
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**contents, f"{own}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return f"{name}=={version} --hash=sha256:{sha256(wheel)}"


def make_jar(repository: Path, coordinates: str, class_name: str, java: str) -> str:
    """Compile a class into a jar in a repository of Ivy, and return the line that locks it.

    Janino, one of Spark's jars, compiles: Sluice's Java has no compiler.
    """
    organisation, name, revision = coordinates.split(":")
    place = repository / organisation / name / revision
    for part in ("jars", "ivys", "classes"):
        (place / part).mkdir(parents=True)
    source = place / f"{class_name.rpartition('.')[2]}.java"
    source.write_text(java)
    jars = spark.home() / "jars"
    path = ":".join(str(next(jars.glob(f"{each}-*.jar"))) for each in ("janino", "commons-compiler"))
    compiler = [str(JAVA), "-cp", path, "org.codehaus.commons.compiler.samples.CompilerDemo"]
    subprocess.run([*compiler, "-d", str(place / "classes"), str(source)], check=True, capture_output=True)
    jar = place / "jars" / f"{name}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted((place / "classes").rglob("*.class")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(place / "classes"))), path.read_bytes())
    (place / "ivys" / "ivy.xml").write_text(IVY.format(organisation, name, revision))
    return f"{coordinates} {sha256(jar)}"


def finding(repository: Path) -> dict[str, str]:
    """Return the variables by which Ivy finds the jars in a repository."""
    return {"JDK_JAVA_OPTIONS": f"-Divy.local.default.root={repository}"}
