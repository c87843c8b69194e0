"""What tests share: each entry plays one role. A helper of one test file is in that file.

For all tests:
    errors             the error that a test expects, by its code; how many examples a property gets
    waiting            `wait_until`
    doubles            doubles of Spark, the event bus, a crash and a plan
    inputs             inputs for parsers: damaged, unusual, or random JSON texts with their schema
    selection          which tests there are, which the quick run leaves out; program: their list
    docs/              code blocks of the documents, their site, the catalogue of messages
    release            program: builds the files of a release

The environment of a pipeline:
    kafka/             brokers, and Kafka as a client that shares no code with `eos` sees it
    simulated_broker/  a broker in the process; `conformance` compares it with a real one
    producer_answers   a leader's error codes for each verdict on a record batch
    security/          a broker with logins, rights and certificates; tokens; a Kerberos KDC
    machines/          an S3, an HDFS, a YARN, a bare machine, the image
    collectors/        the other ends of events, traces, lineage and metrics

Pipelines:
    copies/            pipelines that copy a topic, without Spark: many, paused, killed, recovered
    spark/             pipelines on Spark, by spark-submit or warm, and their accidents
    delta/             Delta tables beside a pipeline
    dedup/             rows and verdicts of dedup, what upstreams send, micro-batches on Spark
    verbs              the verbs of the command line, called with their arguments
    report_page        histories for the report, and a browser to look at it
    screen             a terminal and the rows that it shows
"""
