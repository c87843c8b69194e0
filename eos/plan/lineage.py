"""The lineage of a plan by OpenLineage's naming: each dataset has a namespace and a name.

| dataset | namespace | name |
| --- | --- | --- |
| topic | `kafka://HOST:PORT` of the first address | the topic |
| local path | `file` | the absolute path |
| object store | `s3://BUCKET`, `gs://BUCKET`, ... | the path without the slash at its begin |
| other file system | `hdfs://HOST:PORT`, ... | the absolute path |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.location import local_path, scheme_of

if TYPE_CHECKING:
    from eos.config.monitoring import OpenLineage
    from eos.observe.lineage import RunLineage
    from eos.plan.plan import Plan

# Schemes of object stores, and the one of them that names the store in lineage.
_OBJECT_STORES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "wasb": "wasbs",
    "wasbs": "wasbs",
}


def lineage_of(planned: Plan, wanted: OpenLineage) -> RunLineage:
    """Return the observer that sends the lineage of a run of this plan."""
    # imported late: other runs do without these packages
    from eos.observe.lineage import LineageOfPlan, RunLineage, client_of

    found = LineageOfPlan(
        namespace=wanted.namespace,
        pipeline=planned.names.pipeline,
        is_bounded=planned.trigger_every_ms is None,
        kafka_in=f"kafka://{planned.source_connection.bootstrap[0]}",
        kafka=f"kafka://{planned.bootstrap[0]}",
        topics_in=planned.source_topics,
        topics_out=planned.sink_topics,
        tables_in=[dataset_at(each.path) for each in planned.lookups],
        tables_out=[dataset_at(each.path) for each in planned.tables],
    )
    client = client_of(wanted.url, wanted.endpoint, wanted.headers)
    return RunLineage(found, client, wanted.interval_s)


def dataset_at(location: str) -> tuple[str, str]:
    """Return the namespace and the name of the dataset at a path or URI."""
    path = local_path(location)
    if path is not None:
        return "file", str(path)
    scheme = scheme_of(location)
    rest = location[len(scheme) + 1 :]
    if not rest.startswith("//"):
        return scheme, rest
    authority, _, name = rest[2:].partition("/")
    if scheme in _OBJECT_STORES:
        return f"{_OBJECT_STORES[scheme]}://{authority}", name or "/"
    return f"{scheme}://{authority}", f"/{name}"
