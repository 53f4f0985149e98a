"""What programs run on: devices, the driver, kernel launches and the decode loop on the device."""
