"""What a pipeline reports to: the other ends of its events, traces and metrics.

run_events         the events of a run, one of each that has a metric
lineage            a collector of OpenLineage, and what its events must have
otlp               a collector of OpenTelemetry
prometheus         Prometheus and a push gateway; the alerts and the dashboard
"""
