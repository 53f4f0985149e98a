"""How many threads the kernels take by themselves: the physical cores that this process may really use."""

from __future__ import annotations

from pathlib import Path

import psutil

_PROC, _CGROUPS, _CPUS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), Path("/sys/devices/system/cpu")


def default_threads() -> int:
    """Physical cores, but only those this process is allowed on, and no more than its group's share of CPU
    time comes to.
    """
    process = psutil.Process()
    every = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    cores = min(every, physical_cores(allowed)) if allowed else every
    return max(1, min(cores, int(cpu_share())))


def usable_cpus() -> int:
    """Logical CPUs that this process is allowed on, and has the time of."""
    process = psutil.Process()
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    return max(1, min(len(allowed) if allowed else psutil.cpu_count() or 1, int(cpu_share())))


def physical_cores(allowed: list[int], cpus: Path = _CPUS) -> int:
    """Different cores among the logical CPUs `allowed`; each counts where the system does not say which
    belong together.

    See Documentation/admin-guide/cputopology.rst of Linux.
    """
    return len(
        {_text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in allowed}
    )


def cpu_share(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float:
    """CPUs' worth of time that the control groups of this process grant it, as in a container; many where
    nothing is said.

    Version 2 has `cpu.max` ("quota period"), version 1 `cpu.cfs_quota_us` and `cpu.cfs_period_us`; groups
    further up count too (Linux, Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst).
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
        # Inside a container the path may be the host's and lead nowhere: the root is the group itself then.
        for depth in range(len(parts) + 1):
            shares += _granted(root.joinpath(*parts[:depth]))
    return min(shares)


def _granted(group: Path) -> list[float]:
    """What one group grants, if it limits anything."""
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
