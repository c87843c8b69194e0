"""What a session is. A plain function: call it in a test with any DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def by_user(clicks: DataFrame, gap: str, lateness: str) -> DataFrame:
    """A user's clicks with less than `gap` between them. A session is told once, when no click that
    belongs to it can come any more: `lateness` behind the newest click of all."""
    sessions = clicks.withWatermark("ts", lateness).groupBy("user", f.session_window("ts", gap))
    counted = sessions.agg(f.count("*").alias("clicks"), f.max("ts").alias("last_click"))
    return counted.select(
        "user", f.col("session_window.start").alias("first_click"), "last_click", "clicks"
    )
