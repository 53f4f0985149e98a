"""The hub's HTTP interface: requests, the user's token, the offline switch."""
