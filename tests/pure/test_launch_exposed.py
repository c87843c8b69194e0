"""Which machines can reach Spark's ports by default, and where Spark authenticates."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.launch import spark
from eos.launch.spark import Spark
from eos.spark import session


def test_spark_listens_to_this_machine_alone_unless_the_user_names_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    here = Spark(Path("/s"), is_installed=False, version="4.2.0")

    def address(master: str) -> str | None:
        found = spark.environment(here, Path("/java"), master, tmp_path, tmp_path)
        return found.get("SPARK_LOCAL_IP")

    masters = ("local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]")
    assert {address(each) for each in masters} == {"127.0.0.1"}
    assert address("yarn") is address("spark://x:7077") is None
    monkeypatch.setenv("SPARK_LOCAL_IP", "0.0.0.0")
    assert address("local[*]") == "0.0.0.0"


@pytest.mark.parametrize(
    ("master", "is_on"),
    [
        *[
            (each, True)
            for each in ("yarn", "k8s://https://a:6443", "local", "local[*]", "local[2,3]")
        ],
        *[(each, False) for each in ("spark://host:7077", "local-cluster[2,1,1024]", "")],
    ],
)
def test_spark_authenticates_where_it_creates_the_secret_itself(master: str, is_on: bool) -> None:
    assert (session.unless_set(master) == {"spark.authenticate": "true"}) is is_on
