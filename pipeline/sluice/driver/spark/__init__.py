"""Spark for a driver: JVM, session, slots, Python workers. Start with `session`."""
