"""The platform's JVMs trust the same certificates as the machine."""

import subprocess
from pathlib import Path

from sluice_ops.site.java import JAVA
from sluice_ops.site.trust import truststore_options


def test_the_truststore_holds_the_machines_certificates(tmp_path: Path) -> None:
    options = truststore_options(tmp_path / "trusted.p12")
    password = options[1].partition("=")[2]
    words = [
        JAVA.with_name("keytool"),
        "-list",
        "-keystore",
        tmp_path / "trusted.p12",
        "-storepass",
        password,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.count("trustedCertEntry") > 10
