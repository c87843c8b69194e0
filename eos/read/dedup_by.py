"""What came twice by columns of the user's own: Spark remembers the keys, as long as it has to.

The first row of a key is taken, and its key kept until the watermark has passed the row's time by
`within`. A row that comes behind the watermark is left out: whether its key was there is not known
any more. So the columns must not be null: all rows without a key would be one, and a row without a
time would be forgotten at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.errors import TransformError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_NULL = "dedup: no null"  # its rule's name; none of a user's has a space
_NUMBER = "__eos_number"
_TIMES = ("timestamp",)


@dataclass(frozen=True, slots=True)
class Distinct:
    by: tuple[str, ...]
    within_ms: int
    watermark: str

    @property
    def condition(self) -> str:
        """What each record has to meet."""
        names = dict.fromkeys((*self.by, self.watermark))
        return " AND ".join(f"`{name}` IS NOT NULL" for name in names)

    @property
    def told_of_null(self) -> str:
        return f"is null in a column that `dedup` names (not true: {self.condition})"

    @property
    def hint_of_null(self) -> str:
        return (
            "without its key or time nobody knows whether it came before: let the upstream fill "
            "them, or a pipeline without state sort such records out before this one"
        )

    def apply(self, rows: DataFrame) -> DataFrame:
        """Of each key the first row."""
        self._require(rows)
        if rows.isStreaming:
            known = rows.withWatermark(self.watermark, f"{self.within_ms} milliseconds")
            return known.dropDuplicatesWithinWatermark(list(self.by))
        # Of one table, which has no watermark: the first in the source's order, however late.
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        of_key = Window.partitionBy(*self.by).orderBy("topic", "partition", "offset")
        numbered = rows.withColumn(_NUMBER, f.row_number().over(of_key))
        return numbered.where(f"{_NUMBER} = 1").drop(_NUMBER)

    def _require(self, rows: DataFrame) -> None:
        kinds = {field.name.lower(): field.dataType.typeName() for field in rows.schema.fields}
        for name in (*self.by, self.watermark):
            if name.lower() not in kinds:
                raise TransformError(
                    f"`dedup` names the column `{name}`, which the source does not have",
                    hint=f"it has {', '.join(f'`{each}`' for each in rows.columns)}",
                )
        kind = kinds[self.watermark.lower()]
        if kind not in _TIMES:
            raise TransformError(
                f"`dedup.watermark` is the column `{self.watermark}`, of type {kind.upper()}; "
                "expected a TIMESTAMP",
                hint="give it that type in the source's schema, or name Kafka's own `timestamp`",
            )
