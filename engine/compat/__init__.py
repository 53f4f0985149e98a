"""Interfaces of other engines over this one: scripts written for them run unchanged."""
