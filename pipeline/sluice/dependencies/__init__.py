"""The further Python packages and jars of a pipeline, as two lock files in its package name them.

`lock` reads the files, `provided` knows what Sluice and Spark have already, `build` makes an
environment of the rest, and `environment` lets a process use it. Start with `build`.
"""
