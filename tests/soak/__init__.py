"""A run of hours under faults: `./tests/run soak --hours H --seed S`.

faults      what is done to processes, brokers, network and disk
curves      memory and threads of all processes, sampled
run         program: the run, its checks and its report
page        program: writes docs/soak.md from reports
"""
