"""Dedup's states in a format of a newer release: neither read nor replaced. The audit tables'
format is tested in test_audit_table.py."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from support.dedup import Row, Sent, verdicts_of, versions_in
from support.errors import raises

from eos import table_format
from eos.errors import PromiseBrokenError


def committed(folder, version, sequence):
    """Commit the states after one record, and return the name of their version."""
    opened = versions_in(folder).begin(version)
    verdicts_of(opened, [Row(sequence, Sent(0, b"a", 0, sequence))])
    return opened.commit().version


def test_states_of_a_newer_release_are_neither_read_nor_replaced(tmp_path, monkeypatch):
    committed(tmp_path, "", 0)
    table = DeltaTable(tmp_path / "producers")
    table.alter.set_table_properties({"eos.format": "2"}, raise_if_not_exists=False)
    with monkeypatch.context() as newer_release:
        newer_release.setattr(table_format, "FORMAT", 2)
        written = committed(tmp_path, "", 0)
    version = DeltaTable(tmp_path / "producers").version()
    for before in (written, ""):
        with raises("table_newer", PromiseBrokenError) as caught:
            committed(tmp_path, before, 1)
        assert "--forget-producers" in caught.value.hint
    assert DeltaTable(tmp_path / "producers").version() == version


@pytest.mark.parametrize("value", ["2", "0", "-1", "", "1.5", "x" * 100])
def test_only_a_known_number_is_accepted(tmp_path, value):
    properties = {"eos.format": value}
    if not value:  # as Delta returns a property that was unset
        table_format.require_known_format(tmp_path, properties, remedy="")
        return
    with raises("table_newer"):
        table_format.require_known_format(tmp_path, properties, remedy="")
