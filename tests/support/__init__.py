"""What tests share. A helper of one test file is in that file.

On any test's way:
    errors             the error that a test expects, by its code; how many examples a property gets
    slow_tests         the tests that the quick run leaves out; program: writes their list
    waiting            `wait_until`
    damage             damaged inputs for parsers, a hundred thousand of each
    docs               code blocks of the documents, the project's requirements, refused features
    docs_site          the navigation of the documentation's site, and its pages outside of docs/
    error_catalogue    program: writes docs/messages.md from the source
    named_tests        whether a test that a page names exists
    left_out           a folder of tests whose programs this machine lacks
    release            program: builds the files of a release

Kafka, as a client that shares no code with `eos` sees it:
    kafka_io           write and read topics, wait for markers, groups and their offsets
    varied_topics      topics with transactions, aborts, holes, every codec and large records
    brokers            the brokers of tests; their log files and transactions
    container          a broker in a container; program: makes its image
    three_brokers      a cluster of three behind a proxy: kill, pause, move leaders
    proxy              a proxy that loses, holds, delays and changes requests and answers
    proxy_rules        which requests the proxy strikes, and what it does to them
    kafka_frames       Kafka's requests and responses, decoded by kafka-python
    security           a broker with logins, rights and certificates
    tokens             an authorization server: signed tokens, a token endpoint
    kdc                a KDC of MIT Kerberos, and a broker that logs clients in by it
    schemas            a schema registry, and descriptor files of Protobuf

Without Kafka and without Spark:
    simulated_broker   a broker in the process; `conformance` compares it with a real one
    json_texts         random schemas, and JSON texts for them: sound, unusual and damaged
    dedup              rows and verdicts of dedup
    dedup_model        what upstreams send to dedup; program: an upstream
    proven_lake        a ledger and its Delta table, written by delta-rs, and the proof of both
    run_events         the events of a run, one of each that has a metric
    lineage            a collector of OpenLineage, and what its events must have
    otlp               a collector of OpenTelemetry
    prometheus         Prometheus and a push gateway; the alerts and the dashboard
    doubles            doubles of Spark, the event bus, a crash and a plan

Pipelines on a real broker, without Spark:
    pipeline_copy      a pipeline that copies a topic; program: one process of it
    scenes             many copies at a time, with the checks of what they wrote
    owners             copies as processes that a test pauses, wakes and kills
    verbs              the verbs of the command line, called with their arguments
    python_jobs        programs of users that start a Python job in a session of their own
    recovery           a pipeline whose ledger, group and checkpoint are damaged and recovered
    audit              a pipeline with an audit table; program: brings the table up to the ledger
    report_page        histories for the report, and a browser to look at it
    screen             a terminal and the rows that it shows

Pipelines on Spark:
    project            a project's folder, and its runs: by spark-submit, or warm
    warm_driver        program: the driver of warm runs
    spark_session      a session in the test's process; program: makes the class-data archive
    spark_environment  program: an environment with another pyspark, for `./tests/run all --spark`
    spark_recovery     accidents of a pipeline on Spark, and what operators do
    dedup_on_spark     micro-batches with dedup on a session
    stateful           pipelines that keep state
    lake               pipelines with Delta tables
    executor_faults    a pipeline on executors that die, freeze and lose files
    processes          CPU, memory, threads and connections of a Spark application
    stores             an S3 and an HDFS for checkpoints
    throttling         an endpoint before the S3 that answers some requests with 503
    bare_machine       the environment of a machine without this project
    yarn               a YARN of two nodes
    image              the image of conf/deploy, built and run by podman or docker
"""
