"""What becomes of an order. A plain function: call it in a test with any DataFrame."""

from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

ORDER = "order BIGINT, customer STRING, product STRING, quantity INT, amount DECIMAL(10,2)"


def enrich(orders: DataFrame, tax_rate: float) -> DataFrame:
    """Adds the gross amount, and where in the source the order came from.

    The same record gives the same bytes each time, so a redone micro-batch changes nothing.
    """
    order = f.from_json(f.col("value").cast("string"), ORDER)
    factor = f.lit(Decimal(1) + Decimal(str(tax_rate)))
    gross = f.round(f.col("read.amount") * factor, 2)
    origin = f.struct("partition", "offset")
    enriched = f.struct("read.*", gross.alias("gross"), origin.alias("origin"))
    return orders.withColumn("read", order).select(
        "key",
        f.to_json(enriched).cast("binary").alias("value"),
        "topic",
        "partition",
        "offset",
    )
