#!/bin/sh
exec java -Xmx128m -Dlog4j2.configurationFile=/opt/log4j2.properties -cp "/opt/kafka/libs/*" kafka.tools.StorageTool "$@"
