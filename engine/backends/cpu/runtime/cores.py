"""The default number of kernel threads: the physical cores that this process may use."""

from __future__ import annotations

from pathlib import Path

import psutil

_PROC, _CGROUPS, _CPUS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), Path("/sys/devices/system/cpu")


def default_threads() -> int:
    """Physical cores that this process may run on, limited by its control groups' share of CPU time."""
    process = psutil.Process()
    every = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    cores = min(every, physical_cores(allowed)) if allowed else every
    return max(1, min(cores, int(cpu_share())))


def usable_cpus() -> int:
    """Logical CPUs that this process may run on, limited by its control groups' share of CPU time."""
    process = psutil.Process()
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    return max(1, min(len(allowed) if allowed else psutil.cpu_count() or 1, int(cpu_share())))


def physical_cores(allowed: list[int], cpus: Path = _CPUS) -> int:
    """Physical cores of the logical CPUs `allowed`; a CPU without topology in `cpus` counts as a core.

    Source: Linux, Documentation/admin-guide/cputopology.rst.
    """
    return len(
        {_text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in allowed}
    )


def cpu_share(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float:
    """CPU time that this process's control groups grant, in CPUs, as in a container; 1e9 without a limit.

    Version 2 has `cpu.max` ("quota period"), version 1 `cpu.cfs_quota_us` and `cpu.cfs_period_us`. The limits
    of parent groups apply too. Source: Linux, Documentation/admin-guide/cgroup-v2.rst and
    scheduler/sched-bwc.rst.
    """
    shares = [1e9]
    for line in _text(proc).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = next(
            (cgroups / name for name in (controllers, "cpu") if controllers and (cgroups / name).is_dir()),
            cgroups,
        )
        parts = [part for part in path.split("/") if part not in ("", "..")]
        # In a container the path may be the host's and not exist; the root is then the group itself.
        for depth in range(len(parts) + 1):
            shares += _granted(root.joinpath(*parts[:depth]))
    return min(shares)


def _granted(group: Path) -> list[float]:
    """The limit of one group in CPUs, or nothing."""
    both = _text(group / "cpu.max").split() or [
        _text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")
    ]
    if len(both) != 2 or not all(word.isascii() and word.isdigit() and int(word) for word in both):
        return []  # "max" and -1 are no limit
    return [int(both[0]) / int(both[1])]


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
