"""Pipelines that copy a topic on a real broker, without Spark.

pipeline_copy      a pipeline that copies a topic; program: one process of it
scenes             many copies at a time, with the checks of what they wrote
owners             copies as processes that a test pauses, wakes and kills
recovery           a pipeline whose ledger, group and checkpoint are damaged and recovered
audit              a pipeline with an audit table; program: brings the table up to the ledger
"""
