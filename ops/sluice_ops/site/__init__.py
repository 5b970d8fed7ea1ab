"""The site: its site file and endpoints file, and access to Kafka, PostgreSQL, Spark and Java.

Start with `site_file`, which describes each key of the site file.
"""
