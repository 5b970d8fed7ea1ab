# One image for everything of Sluice and Airflow and Spark: controller, agents, tier drivers, workers, masters, Airflow's components.
# docker-compose.yaml runs it; requirements.lock decides what is in it.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends procps tini util-linux \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/sluice
RUN pip install --no-cache-dir uv
COPY requirements.lock pyproject.toml README.md ./
RUN uv venv .venv && uv pip sync --python .venv/bin/python --require-hashes --compile-bytecode requirements.lock

ENV PATH=/opt/sluice/.venv/bin:$PATH \
    JAVA_HOME=/opt/sluice/shipped/java \
    SPARK_HOME=/opt/sluice/.venv/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=/opt/sluice/.venv/bin/python \
    PYTHONUNBUFFERED=1 \
    SLUICE_HOME=/var/lib/sluice \
    SLUICE_SITE=/opt/sluice/site.yaml \
    SLUICE_ENDPOINTS=/etc/sluice/endpoints.json

COPY . .
RUN uv pip install --python .venv/bin/python --no-deps --editable . \
    && SLUICE_HOME=/opt/sluice/shipped python -m ops.platform.services jars \
    && python -c "from pathlib import Path; from ops.java import home_for_spark; home_for_spark(Path('/opt/sluice/shipped'))"

ENTRYPOINT ["tini", "-g", "--"]
CMD ["sluice", "--help"]
