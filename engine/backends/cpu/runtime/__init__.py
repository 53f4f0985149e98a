"""The threads, cores, memory and clocks that programs run on."""
