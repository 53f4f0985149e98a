"""What a program runs on: threads, cores, memory and clocks."""
