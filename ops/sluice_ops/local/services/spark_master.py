"""The Spark master: it forgets nothing when it is killed, and comes back with its applications and workers."""

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


def service(where: Layout) -> Service:
    """Describe the master."""
    ports, state = where.ports, where.data / "spark"
    page = f"http://{ADDRESS}:{ports.spark_page}/json/"
    config = where.conf / "spark-master.conf"

    def ready() -> None:
        with urllib.request.urlopen(page, timeout=2) as answer:
            status = json.load(answer)["status"]
        if status != "ALIVE":
            message = f"it says that it is {status}"
            raise NotReadyError(message)

    def prepare() -> None:
        # What a killed master has to remember is younger than this: supervisord brings it back without coming here.
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
            "spark.authenticate.secret": where.secrets().spark,
        }
        write_private(config, "".join(f"{key} {value}\n" for key, value in settings.items()))

    command = (
        str(JAVA), *jvm.options(where, "spark-master", 256), "-cp", f"{where.spark_jars}/*",
        "org.apache.spark.deploy.master.Master", "--host", ADDRESS, "--port", str(ports.spark), "--webui-port", str(ports.spark_page),
        "--properties-file", str(config),
    )  # fmt: skip
    environment = {"SPARK_HOME": str(where.spark_home), "SPARK_LOCAL_IP": ADDRESS}
    return Service(
        "spark", Program(command, environment), ready, prepare, ports=(ports.spark, ports.spark_page)
    )
