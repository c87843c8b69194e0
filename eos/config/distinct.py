"""What came twice by a key of the business's own: which columns, and within which time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from eos.config import ddl
from eos.config.base import KAFKA_COLUMNS, DurationMs, Identifier, Strict

if TYPE_CHECKING:
    from eos.config.source import Source

_TIMES = frozenset({"timestamp", "timestamp_ltz"})


class ByColumns(Strict):
    """Of records that agree in the columns `by`, and whose times in the column `watermark` are less
    than `within` apart, the first is taken. Spark keeps the keys, in the checkpoint."""

    by: tuple[Identifier, ...] = Field(min_length=1)
    within_ms: DurationMs = Field(alias="within")
    watermark: Identifier

    def require_fits(self, source: Source) -> None:
        """Raises ValueError with what was expected. The columns of an Avro schema that lies in a
        file of its own are known to Spark alone, at the start."""
        lower = [name.lower() for name in self.by]
        twice = [name for at, name in enumerate(self.by) if name.lower() in lower[:at]]
        if twice:
            raise ValueError(f"expected each column of `dedup.by` once: `{twice[0]}` is twice")
        kinds = _kinds(source)
        if kinds is None:
            return
        named = [("dedup.by", name) for name in self.by] + [("dedup.watermark", self.watermark)]
        for key, name in named:
            if name.lower() not in kinds:
                raise ValueError(
                    f"expected columns that the source has in `{key}`: `{name}` is none of them "
                    f"(there is {', '.join(f'`{each}`' for each in kinds)})"
                )
        kind = kinds[self.watermark.lower()]
        if kind and kind not in _TIMES:
            raise ValueError(
                "expected a column of type TIMESTAMP as `dedup.watermark`: "
                f"`{self.watermark}` is {kind.upper()}; Kafka's own `timestamp` is one"
            )


def _kinds(source: Source) -> dict[str, str] | None:
    """The type of each column, by its name in small letters; empty where only Spark knows. None:
    the names are not known either."""
    kinds = {name.lower(): "no time" for name in KAFKA_COLUMNS} | {"timestamp": "timestamp"}
    for read in (source.key, source.value):
        if isinstance(read, str):
            continue
        if read.column is not None:
            kinds[read.column.lower()] = "struct"
        elif read.json_schema is not None:
            kinds |= {each.name.lower(): each.kind for each in ddl.columns(read.json_schema)}
        elif isinstance(read.avro, str):
            kinds |= {name.lower(): "" for name in read.names}
        else:
            return None
    return kinds
