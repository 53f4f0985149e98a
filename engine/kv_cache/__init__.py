"""The key/value cache: its page table (`pages`) and its stores."""
