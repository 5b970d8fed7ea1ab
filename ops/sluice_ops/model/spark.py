"""What Spark's processes have to agree on. It imports nothing, because a driver starts its JVM with it before it imports anything else."""

SPARK_SECURITY = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}
"""Spark's settings wherever there is a secret: nobody without it is spoken to, and nothing is said in the clear."""
