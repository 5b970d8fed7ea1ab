"""Read-only answers for the CLI and for Airflow: history, figures, progress. Start with `describe`."""
