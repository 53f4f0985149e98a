"""Command `selftest`: whether a device computes correctly.

Compares its kernels with the reference and, given a model, the model's answers with another backend's.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.cli.command import Answer, Command, Console
from engine.cli.flags import add_device, add_settings, model_path, read_settings
from engine.cli.opening import load
from engine.errors import EngineError
from engine.platform.terminal import padded
from engine.settings import CacheSettings, LoadSettings
from engine.units import number_text
from engine.words import N_, _, ngettext, translate

if TYPE_CHECKING:
    from engine.backends.base import Backend
    from engine.cli.selftest_model import Answers

CONTEXT = 512


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=model_path,
        nargs="?",
        help=_("a GGUF file or a model folder; without it, check only the kernels"),
    )
    add_device(parser)
    parser.add_argument(
        "--only",
        metavar="WORD",
        action="append",
        default=[],
        help=_("run only the checks whose name contains this word"),
    )
    parser.add_argument("--skip-kernels", action="store_true", help=_("with a model, check only its answers"))
    add_settings(parser, LoadSettings, without=("backend", "gpus", "prompt_bits", "chat_template"))


def _answer(options: argparse.Namespace, console: Console) -> Answer:
    from engine.backends import backend_on
    from engine.backends.choice import choose, settled
    from engine.models.proof.provable import Provable

    settings = read_settings(LoadSettings, options)
    target = choose(settings)
    settings = settled(settings, target)
    kernels: list[dict[str, Any]] = []
    backend = backend_on(target, settings)
    if isinstance(backend, Provable):
        backend.forget_proofs()  # a model loaded next proves its kernels again, with the same cases
    if not options.skip_kernels:
        kernels = _kernels(backend, options.only, console)
    against, answers = "", list[dict[str, Any]]()
    if options.model is not None:
        against = "reference" if target.backend == "cpu" else "cpu"
        answers = _answers(options.model, settings, replace(settings, backend=against, gpus=""), console)
    failed = sum(not row["passed"] for row in [*kernels, *answers])
    return {
        "device": target.backend, "where": target.where, "kernels": kernels, "model": options.model,
        "against": against, "answers": answers, "failed": failed,
        "passed": bool(kernels or answers) and not failed,
    }  # fmt: skip


def _kernels(backend: Backend, words: list[str], console: Console) -> list[dict[str, Any]]:
    from engine.backends.choice import check_reference
    from engine.models.proof.case import checked
    from engine.models.proof.cases import cases

    check_reference()
    from engine.backends.reference.backend import ReferenceBackend

    reference = ReferenceBackend()
    chosen = [
        case for case in cases() if not words or any(word.lower() in case.name.lower() for word in words)
    ]
    found = []
    for number, case in enumerate(chosen):
        console.progress(
            _("{number} of {total}: {name}", number=number + 1, total=len(chosen), name=case.name)
        )
        try:
            found.append(checked(case, backend, reference))
        except EngineError as error:
            found.append(
                {
                    "name": case.name,
                    "difference": None,
                    "tolerance": case.tolerance,
                    "passed": False,
                    "error": str(error),
                }
            )
    console.clear()
    return found


def _answers(
    model: str, settings: LoadSettings, baseline: LoadSettings, console: Console
) -> list[dict[str, Any]]:
    """Compare the baseline with the device, which is given the baseline's tokens; never both in memory."""
    from engine.cli.selftest_model import compared

    usual = _asked(model, baseline, (), console)
    return compared(_asked(model, settings, usual.ids, console), usual)


def _asked(
    model: str, settings: LoadSettings, forced: tuple[tuple[int, ...], ...], console: Console
) -> Answers:
    from engine.cli.selftest_model import answers

    # Rounding in the KV cache is not a difference between devices, so both use the most precise cache.
    chat = load(
        model, settings, CacheSettings(context_length=min(CONTEXT, _context(model)), dtype="fp32"), console
    )
    try:
        if chat.info.notice:
            console.note(f"{chat.info.notice}\n{chat.info.report}".rstrip())
        console.progress(_("Asking the model on the {name} backend", name=chat.generator.model.backend.name))
        return answers(chat, forced)
    finally:
        console.clear()
        chat.close()


def _context(model: str) -> int:
    from engine.vision.describe import describe

    return describe(model).context_length


def _show(answer: Answer) -> str:
    device, where, lines = answer["device"], answer["where"], []
    if answer["kernels"]:
        full = f"{device}, {where}" if where else device
        lines += [_("{device}, against the reference:", device=full), *map(_line, answer["kernels"])]
    if answer["answers"]:
        about = _(
            "{model} on {device}, against the {other} backend:",
            model=answer["model"],
            device=where or device,
            other=answer["against"],
        )
        lines += [about, *map(_line, answer["answers"])]
    checks = len(answer["kernels"]) + len(answer["answers"])
    words = (
        ngettext("{n} check, {failed} failed", "{n} checks, {failed} failed", checks, failed=answer["failed"])
        if checks
        else _("nothing was checked: no check has a matching name")
    )
    return "\n".join([*lines, words])


def _line(row: dict[str, Any]) -> str:
    found = _("none") if row["difference"] is None else number_text(row["difference"], ".2e")
    verdict = _("ok") if row["passed"] else f"{_('FAILED')}  {row.get('error', '')}".rstrip()
    most = _("of at most {tolerance:.0e}", tolerance=row["tolerance"])
    return f"  {padded(translate(row['name']), 42)} {padded(found, 9, right=True)}  {most}  {verdict}"


SELFTEST = Command(
    "selftest",
    N_("check that a device computes what it should"),
    _arguments,
    _answer,
    _show,
    failed=lambda answer: not answer["passed"],
)
