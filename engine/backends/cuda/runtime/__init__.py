"""What a program runs on: the device, the driver, launches, the decode loop on the device."""
