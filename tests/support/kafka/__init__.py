"""Kafka, as a client that shares no code with `eos` sees it.

kafka_io           write and read topics, wait for markers, groups and their offsets
varied_topics      topics with transactions, aborts, holes, every codec and large records
brokers            the brokers of tests; their log files and transactions
container          a broker in a container; program: makes its image
three_brokers      a cluster of three behind a proxy: kill, pause, move leaders
proxy              a proxy that loses, holds, delays and changes requests and answers
proxy_rules        which requests the proxy strikes, and what it does to them
kafka_frames       Kafka's requests and responses, decoded by kafka-python
schemas            a schema registry, and descriptor files of Protobuf
"""
