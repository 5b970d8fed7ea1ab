"""The vocabulary: every word that crosses the control channel, as frozen types. Pure: no I/O, no clocks, no environment.

Read by everything else, `sluice` and `sluice_airflow` included; imports nothing of the project but itself.
"""
