"""Ways in: sources that write records into a stream from outside, each record once (decision 95).

Start with `source`: a transaction of Kafka writes records and what the source remembers of them.
`files` follows log files, and `http` serves clients.
"""
