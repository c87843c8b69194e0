"""The catalogue of faults, and the page docs/faults.md that lists it.

fault       a row
processes   drivers, executors, instances, requests
cluster     brokers, network, clocks
data        topics, records, rights, checkpoints, surroundings
page        program: writes the page
outcomes    program: keeps the outcomes of a test run for the page
"""

from __future__ import annotations

from faults import cluster, data, processes
from faults.fault import Fault

SECTIONS: dict[str, tuple[Fault, ...]] = {
    "Processes and requests": processes.FAULTS,
    "Brokers, network, clocks": cluster.FAULTS,
    "Topics, records, checkpoints, surroundings": data.FAULTS,
}
FAULTS = tuple(fault for section in SECTIONS.values() for fault in section)
