"""The permission that is missing if a broker rejects a request, and how to grant it.

The broker's error code names only the kind of the resource. The operation and the resource name
follow from the request. This module does not know the user: `errors.with_principal` adds it later.
"""

from __future__ import annotations

from dataclasses import dataclass

from eos.errors import PRINCIPAL, THE_PRINCIPAL

# Kafka's authorization error codes, and the kind of resource of each.
RESOURCES = {29: "Topic", 30: "Group", 31: "Cluster", 53: "TransactionalId"}

_FLAGS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}
# Operations whose names for kafka-acls.sh lack the underscore of our messages.
_OPERATIONS = {"DESCRIBE_CONFIGS": "DescribeConfigs", "IDEMPOTENT_WRITE": "IdempotentWrite"}
# The operation that a request needs, by request and error code, where `_USUAL` does not apply. READ
# and WRITE imply DESCRIBE.
_BY_REQUEST = {
    ("CreateTopics", 29): "CREATE",
    ("CreateTopics", 31): "CREATE",
    ("DeleteRecords", 29): "DELETE",
    ("DescribeConfigs", 29): "DESCRIBE_CONFIGS",
    ("DescribeConfigs", 31): "DESCRIBE_CONFIGS",
    ("DescribeProducers", 29): "READ",
    ("Fetch", 29): "READ",
    ("ListOffsets", 29): "DESCRIBE",
    ("Metadata", 29): "DESCRIBE",
    ("ListGroups", 31): "DESCRIBE",
    ("OffsetCommit", 29): "READ",
    ("OffsetFetch", 29): "DESCRIBE",
    ("TxnOffsetCommit", 29): "READ",
}
_USUAL = {"Topic": "WRITE", "Group": "READ", "Cluster": "IDEMPOTENT_WRITE"}


@dataclass(frozen=True, slots=True)
class Right:
    operation: str
    resource: str
    name: str  # the resource's name; empty for Cluster, or if unknown

    @property
    def message(self) -> str:
        named = f" '{self.name}'" if self.name else ""
        return f"{THE_PRINCIPAL} lacks {self.operation} on {self.resource}{named}."

    @property
    def grant(self) -> str:
        flag = "--cluster"
        if self.resource != "Cluster":
            flag = f"{_FLAGS[self.resource]} {self.name or 'NAME'}"
        operation = _OPERATIONS.get(self.operation, self.operation.capitalize())
        return (
            f"grant {self.operation} on {self.resource}: kafka-acls.sh --bootstrap-server ... "
            f"--add --allow-principal {PRINCIPAL} --operation {operation} {flag}; docs/security.md "
            "lists all permissions that a pipeline needs"
        )


def missing(request: str, code: int, name: str = "") -> Right | None:
    """Return the permission that an error code of the broker shows to be missing.

    Return None if the code is not an authorization error. `request` is the request's name in
    Kafka's protocol, and `name` the name of the resource."""
    resource = RESOURCES.get(code)
    if resource is None:
        return None
    operation = _BY_REQUEST.get((request, code)) or _USUAL.get(resource, "WRITE")
    return Right(operation, resource, "" if resource == "Cluster" else name)
