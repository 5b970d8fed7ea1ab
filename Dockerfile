# One image for everything of Sluice and Airflow and Spark: controller, agents, tier drivers, workers, masters, Airflow's components.
# docker-compose.yaml runs it; requirements.lock and ops/sluice_ops/site/jars.lock decide what is in it.
# BASE is a Debian or Ubuntu with Python 3.11 or 3.12 and its venv. A package registry of your own:
# `--secret id=registry,src=FILE`, a file with lines such as PIP_INDEX_URL=… or SSL_CERT_FILE=….
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN apt-get update \
    && apt-get install --yes --no-install-recommends procps tini util-linux \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/sluice
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY ops/sluice_ops/local/install.py ops/sluice_ops/local/install.py
ARG UV_CACHE_DIR=/tmp/uv
RUN --mount=type=secret,id=registry \
    if [ -f /run/secrets/registry ]; then set -a; . /run/secrets/registry; set +a; fi \
    && UV_LINK_MODE=copy python3 -I ops/sluice_ops/local/install.py \
    && rm -rf /tmp/uv .sluice/uv

ENV PATH=/opt/sluice/.venv/bin:$PATH \
    JAVA_HOME=/opt/sluice/shipped/java \
    PYSPARK_PYTHON=/opt/sluice/.venv/bin/python \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=2 \
    SLUICE_HOME=/var/lib/sluice \
    SLUICE_ENDPOINTS=/etc/sluice/endpoints.json

COPY . .
RUN SLUICE_HOME=/opt/sluice/shipped python -m sluice_ops.local.parts jars \
    && python -c "from pathlib import Path; from sluice_ops.site.java import home_for_spark; home_for_spark(Path('/opt/sluice/shipped'))" \
    && ln -s "$(python -c 'from sluice_ops.site.spark import home; print(home())')" /opt/sluice/shipped/spark

ENV SPARK_HOME=/opt/sluice/shipped/spark

ENTRYPOINT ["tini", "-g", "--"]
CMD ["sluice", "--help"]
