"""Histories of producers, pipelines and consumers under faults, and a checker of them.

checker     finds anomalies in a history; shares no code with eos; program: checks a file
recorder    writes a history as lines of JSON
clients     producers and read_committed consumers that record what they do and see
pipelines   processes of pipelines that are killed, paused, replaced and started again
"""
