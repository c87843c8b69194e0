#!/bin/sh
# What a container runs: a driver or an executor that Spark on Kubernetes has asked for, else `eos`
# with these arguments.
set -eu
spark=/opt/spark
case ${1:-} in
  driver) # a pod of --deploy-mode cluster, or of the Spark operator
    shift
    exec "$spark/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
  executor)
    # The root file system is read-only. Spark keeps what the driver sends in the working directory.
    export SPARK_HOME=$spark
    cd "${SPARK_LOCAL_DIRS%%,*}"
    set -- # java's arguments: each SPARK_JAVA_OPT_N is one, and may contain spaces
    number=0
    while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
      eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
      number=$((number + 1))
    done
    classes="${SPARK_CONF_DIR:-$spark/conf}:$spark/jars/*:${SPARK_EXTRA_CLASSPATH:-}"
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classes" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac

# A run that SIGTERM ends has exit code 0. To Kubernetes that would be the end of a Job, and a pod that
# was moved to another node would not be replaced. So here the exit code is that of the signal.
stopped=
run=
trap 'stopped=1; [ -z "$run" ] || kill -TERM "$run" 2>/dev/null || true' TERM INT
eos "$@" &
run=$!
[ -z "$stopped" ] || kill -TERM "$run" # it came while `eos` started
while :; do
  code=0
  wait "$run" || code=$?
  kill -0 "$run" 2>/dev/null || break # else a signal has interrupted the waiting
done
[ -z "$stopped" ] || [ "$code" != 0 ] || code=143
exit "$code"
