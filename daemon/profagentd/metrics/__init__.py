"""What the board does meanwhile: NPU, memory, temperatures, processors, network, disks, processes."""
