"""The only place that knows the Kafka library."""

from eos.transaction.wire.admin import At
from eos.transaction.wire.cluster import TopicInfo
from eos.transaction.wire.records import StoredRecord
from eos.transaction.wire.wire import PendingProduce, Wire

__all__ = ["At", "PendingProduce", "StoredRecord", "TopicInfo", "Wire"]
