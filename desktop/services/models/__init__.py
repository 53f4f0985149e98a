"""Models on this computer and on the hub, devices, and the memory that models need."""
