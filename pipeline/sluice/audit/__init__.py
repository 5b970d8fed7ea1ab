"""The running audit: is everything that a tier was given put out, set aside or left out on purpose? Decision record 0009.

`python -m sluice.audit` looks every few seconds, beside the tiers and without asking them: it reads what they wrote. `stream` audits
tiers that write a stream, `table` those that fill a table; `coverage` is the arithmetic, `book` what is remembered.
"""
