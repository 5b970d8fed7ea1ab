"""Checks of a pipeline before a tier runs: Spark operators, shapes of streams and sinks, state.

Start with `operators`.
"""
