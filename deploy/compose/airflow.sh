# airflow.sh WORD...: Airflow with its secrets, which the job `keys` has made.
set -ae
. /etc/sluice/airflow.env
set +a
mkdir -p "$AIRFLOW_HOME"
exec airflow "$@"
