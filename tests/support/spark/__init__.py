"""Pipelines on Spark.

project            a project's folder, and its runs: by spark-submit, or warm
warm_driver        program: the driver of warm runs
spark_session      a session in the test's process; program: makes the class-data archive
spark_environment  program: an environment with another pyspark, for `./tests/run all --spark`
spark_recovery     accidents of a pipeline on Spark, and what operators do
stateful           pipelines that keep state
executor_faults    a pipeline on executors that die, freeze and lose files
processes          CPU, memory, threads and connections of a Spark application
python_jobs        programs of users that start a Python job in a session of their own
"""
