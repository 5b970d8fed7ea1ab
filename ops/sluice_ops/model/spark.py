"""Settings that all Spark processes of a site share.

This module imports nothing, because a driver reads it to start its JVM before all other imports.
"""

SPARK_SECURITY = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Spark's settings on a site with a Spark secret: only its holders may connect, and all traffic is
encrypted."""
