"""The workflow files: README's commands, pinned versions. They cannot be run here."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.__main__ import parser
from tests.release.plan import TOOLS

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
SYSTEMS = {"linux", "windows", "macos"}


def loaded(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))


def readme_command(after: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return next(line for line in text.split(after, 1)[1].splitlines() if line.startswith("python3 "))


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def jobs() -> list[Any]:
    return [
        pytest.param(job, id=f"{file.stem}-{name}")
        for file in FILES
        for name, job in loaded(file.name)["jobs"].items()
    ]


def test_there_is_a_job_for_each_system() -> None:
    assert [file.name for file in FILES] == ["release.yml", "tests.yml"]
    for file in FILES:
        assert set(loaded(file.name)["jobs"]) == SYSTEMS
        assert loaded(file.name)["permissions"] == {"contents": "read"}
        assert "NOT RUN YET" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_actions_are_pinned_by_their_commits(file) -> None:
    used = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert used
    for line in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@pytest.mark.parametrize("job", jobs())
def test_systems_tools_and_times_are_fixed(job) -> None:
    runners = job.get("strategy", {}).get("matrix", {}).get("runner", [job["runs-on"]])
    assert all(re.fullmatch(r"(ubuntu|windows|macos)-\d[\d.]*", runner) for runner in runners)
    assert job["timeout-minutes"] <= 120
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    images = re.findall(r"^python:(\d\.\d+)-bookworm$", job.get("container", ""))
    set_up = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in str(step)]
    (version,) = images + set_up
    assert project["requires-python"] == f">={version}"


@pytest.mark.parametrize("job", jobs())
def test_what_a_stranger_could_write_is_no_part_of_a_command(job) -> None:
    assert "${{" not in commands(job)


def test_the_suite_is_run_by_readme_s_commands() -> None:
    found = loaded("tests.yml")["jobs"]
    command = readme_command("<!-- the test command: .ci/run takes it from here -->")
    assert command in commands(found["macos"])
    install, _, test = command.rpartition(" && ")
    windows = commands(found["windows"])
    for part in (install, test):
        assert (
            part.replace("python3 -m venv", "python -m venv").replace(".venv/bin/", ".venv\\Scripts\\")
            in windows
        )
    assert ".ci/run" in commands(found["linux"])
    assert "`.ci/run` runs everything" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", sorted((ROOT / ".ci").glob("*.py")), ids=lambda script: script.stem)
def test_what_the_scripts_of_ci_import_is_there(script) -> None:
    """They are run behind all tests, and only there."""
    assert callable(runpy.run_path(str(script))["main"])
    assert f".ci/{script.name}" in (ROOT / ".ci/run").read_text(encoding="utf-8")


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_packages_are_made_by_the_release_command(system) -> None:
    lines = [
        line
        for line in commands(loaded("release.yml")["jobs"][system]).splitlines()
        if "tests.release" in line
    ]
    asked = [parser().parse_args(shlex.split(line.replace("\\", "/"))[3:]) for line in lines]
    assert [one.starter for one in asked] == ([False, True] if system == "linux" else [True])
    for one in asked:
        assert one.out.name == "dist"
        assert one.site
        assert one.update_key
        assert bool(one.signer) == (system != "linux")
        assert bool(one.notary) == (system == "macos")


def test_the_tools_of_linux_packages_are_those_that_the_release_names() -> None:
    installed = commands(loaded("release.yml")["jobs"]["linux"])
    for package in TOOLS.split("apt install ")[1].split():
        assert f" {package}" in installed
