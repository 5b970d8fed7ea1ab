"""The engines of a tier: into streams, into a sink, into a table behind state.

Start with `contract`.
"""
