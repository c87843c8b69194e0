"""Removal of duplicates by columns that the user names (`dedup: by`).

Spark keeps the first row of each key and drops the later ones. It remembers a key until the
watermark is later than the row's time by `within`. A row older than the watermark is dropped, since
its key may be forgotten already. The columns must not be null: all rows without a key would count
as duplicates of one another, and a row without a time would be forgotten at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.errors import TransformError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_NULL = "dedup: no null"  # rule for null columns; users' rule names have no spaces
_NUMBER = "__eos_number"
_TIMES = ("timestamp",)


@dataclass(frozen=True, slots=True)
class Distinct:
    """The settings of dedup by columns: key columns, time column, and how long a key is
    remembered."""

    by: tuple[str, ...]
    within_ms: int
    watermark: str

    @property
    def condition(self) -> str:
        """Return the SQL condition that each record must meet: no column of dedup is null."""
        names = dict.fromkeys((*self.by, self.watermark))
        return " AND ".join(f"`{name}` IS NOT NULL" for name in names)

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the first row of each key. In a stream, a key is remembered for `within_ms`."""
        self._require(rows)
        if rows.isStreaming:
            known = rows.withWatermark(self.watermark, f"{self.within_ms} milliseconds")
            return known.dropDuplicatesWithinWatermark(list(self.by))
        # A frame that is no stream has no watermark. Keep the first row in the source's order,
        # however much later its duplicates are.
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        of_key = Window.partitionBy(*self.by).orderBy("topic", "partition", "offset")
        numbered = rows.withColumn(_NUMBER, f.row_number().over(of_key))
        return numbered.where(f"{_NUMBER} = 1").drop(_NUMBER)

    def _require(self, rows: DataFrame) -> None:
        kinds = {field.name.lower(): field.dataType.typeName() for field in rows.schema.fields}
        for name in (*self.by, self.watermark):
            if name.lower() not in kinds:
                columns = ", ".join(f"`{each}`" for each in rows.columns)
                raise TransformError(
                    "dedup_column_missing",
                    f"`dedup` names the column `{name}`, which the source does not have",
                    hint=f"correct `dedup` in the pipeline file; the source has {columns}",
                )
        kind = kinds[self.watermark.lower()]
        if kind not in _TIMES:
            type_name = kind.upper()
            raise TransformError(
                "dedup_watermark_type",
                f"`dedup.watermark` is the column `{self.watermark}`, which has type {type_name}; "
                "expected a TIMESTAMP",
                hint="give it this type in the source's schema, or use Kafka's column `timestamp`",
            )
