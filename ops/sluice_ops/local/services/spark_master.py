"""The Spark master: a killed one recovers its applications and workers from disk."""

import json
import shutil
import urllib.request

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services import jvm
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.site.files import write_private
from sluice_ops.site.java import JAVA

MANY_FAILURES = 1_000_000
"""Failed executors after which the master removes an application: in effect never."""


def service(layout: Layout) -> Service:
    """Return the master as a service."""
    ports, state = layout.ports, layout.data / "spark"
    page = f"http://{ADDRESS}:{ports.spark_page}/json/"
    config = layout.conf / "spark-master.conf"

    def ready() -> None:
        with urllib.request.urlopen(page, timeout=2) as answer:
            status = json.load(answer)["status"]
        if status != "ALIVE":
            message = f"the master reports the status {status}"
            raise NotReadyError(message)

    def prepare() -> None:
        # `up` starts with empty state; supervisord restarts a killed master without `prepare`, with
        # its state
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        settings = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(state),
            "spark.deploy.maxExecutorRetries": str(MANY_FAILURES),
            "spark.deploy.retainedApplications": "5",
            "spark.deploy.retainedDrivers": "5",
            "spark.dead.worker.persistence": "1",
            "spark.decommission.enabled": "true",
            "spark.master.rest.enabled": "false",
            "spark.ui.killEnabled": "false",
            **SPARK_SECURITY,
            "spark.authenticate.secret": layout.secrets().spark,
        }
        write_private(config, "".join(f"{key} {value}\n" for key, value in settings.items()))

    command = (
        str(JAVA), *jvm.options(layout, "spark-master", 256), "-cp", f"{layout.spark_jars}/*",
        "org.apache.spark.deploy.master.Master", "--host", ADDRESS, "--port", str(ports.spark),
        "--webui-port", str(ports.spark_page), "--properties-file", str(config),
    )  # fmt: skip
    environment = {"SPARK_HOME": str(layout.spark_home), "SPARK_LOCAL_IP": ADDRESS}
    return Service(
        "spark", Program(command, environment), ready, prepare, ports=(ports.spark, ports.spark_page)
    )
