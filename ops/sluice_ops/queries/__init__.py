"""Read-only queries: they read the channel and PostgreSQL and return lines for lists.

They never write to the channel. `figures.settle` marks losses in PostgreSQL. Start with `describe`.
"""
