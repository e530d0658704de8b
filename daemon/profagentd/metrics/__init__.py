"""Metrics of the board: NPU, memory, temperatures, processors, network, disks, processes."""
