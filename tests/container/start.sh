#!/bin/sh
# The container's first process. /kafka is mounted: server.properties comes from outside, data/ stays.
set -euf # the JVM reads the * of a class path itself
java='java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms128m -Xmx512m -cp /opt/kafka/jars/*
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties'
# shellcheck disable=SC2086 - words on purpose
$java kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" \
  --config /kafka/server.properties
# Bounded: tests that were killed leave it behind.
# shellcheck disable=SC2086
exec timeout 7200 $java kafka.Kafka /kafka/server.properties
