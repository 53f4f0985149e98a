"""A module for `python_command`: prints its arguments and where it imports from."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Print them as JSON; the exit code is 3."""
    print(json.dumps([sys.argv[1:], sys.path]))
    return 3
