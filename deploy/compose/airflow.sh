# airflow.sh WORD...: run an Airflow command with the secrets that the job `keys` created.
set -ae
. /etc/sluice/airflow.env
set +a
mkdir -p "$AIRFLOW_HOME"
exec airflow "$@"
