"""Updates of the program itself: a signed list of the latest packages, and the exchange of an AppImage."""
