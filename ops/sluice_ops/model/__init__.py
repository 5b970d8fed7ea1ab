"""The data types of the control channel, as frozen pydantic models.

Pure: no I/O, no clocks, no environment. All other packages import this one, `sluice` and
`sluice_airflow` included; it imports nothing else of the project. Start with `tier`, `incarnation`
and `change`.
"""
