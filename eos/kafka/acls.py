"""Which right a refusal is about: the operation, the resource, and the command that grants it.

The broker answers with a code for the kind of the resource and no more. What was asked for tells
the rest. Who asked is known to those that have the settings only: `errors.as_principal` names them.
"""

from __future__ import annotations

from dataclasses import dataclass

from eos.errors import PRINCIPAL, THE_PRINCIPAL

# Kafka's codes of refusal, and the kind of resource that each is about.
RESOURCES = {29: "Topic", 30: "Group", 31: "Cluster", 53: "TransactionalId"}

_FLAGS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}
# As kafka-acls.sh writes them; messages use the words of Kafka's documentation.
_OPERATIONS = {"DESCRIBE_CONFIGS": "DescribeConfigs", "IDEMPOTENT_WRITE": "IdempotentWrite"}
# Where a request needs less than its kind of resource usually does, or more. READ and WRITE bring
# DESCRIBE with them.
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
    ("OffsetFetch", 29): "DESCRIBE",
    ("TxnOffsetCommit", 29): "READ",
}
_USUAL = {"Topic": "WRITE", "Group": "READ", "Cluster": "IDEMPOTENT_WRITE"}


@dataclass(frozen=True, slots=True)
class Right:
    operation: str
    resource: str
    name: str  # of the resource; empty for Cluster, or where it is not known

    @property
    def told(self) -> str:
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
            "lists all that a pipeline needs"
        )


def missing(request: str, code: int, name: str = "") -> Right | None:
    """`request` by Kafka's name. None if the code is no refusal."""
    resource = RESOURCES.get(code)
    if resource is None:
        return None
    operation = _BY_REQUEST.get((request, code)) or _USUAL.get(resource, "WRITE")
    return Right(operation, resource, "" if resource == "Cluster" else name)
