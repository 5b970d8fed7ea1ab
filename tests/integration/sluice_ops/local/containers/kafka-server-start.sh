#!/bin/sh
exec java -Xmx320m -XX:+UseSerialGC -Dlog4j2.configurationFile=/opt/log4j2.properties -cp "/opt/kafka/libs/*" kafka.Kafka "$@"
