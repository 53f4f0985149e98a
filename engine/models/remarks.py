"""What a user should know about a model before trusting it: parts that are left out, other arithmetic."""

from __future__ import annotations

from engine.models.config import ModelConfig
from engine.models.config.hyper import Cycles
from engine.printable import one_line
from engine.weights import Checkpoint
from engine.words import _


def remarks(checkpoint: Checkpoint, config: ModelConfig) -> tuple[str, ...]:
    """Sentences; () if there is nothing to say."""
    found = []
    if isinstance(config.cycles, Cycles) and _reads_ahead(checkpoint):
        found.append(
            _(
                "The model may let the tokens of a prompt attend to later ones of it, which is not "
                "supported here: each attends to earlier ones alone."
            )
        )
    if checkpoint.format != "gguf":
        tasks = checkpoint.metadata["config"].get("lora_adaptations")
        if config.bidirectional and isinstance(tasks, list) and tasks:
            found.append(
                _(
                    "The model has adapters for tasks ({tasks}), which are not used: texts are embedded "
                    "without a task.",
                    tasks=one_line(", ".join(map(str, tasks))),
                )
            )
    elif config.experts is not None and config.experts.nearness >= 0:
        found.append(
            _(
                "The model's experts are weighed by SparseMixer, as its authors do; llama.cpp weighs them "
                "by a plain softmax, so its replies differ."
            )
        )
    if config.experts is not None and config.experts.adjugates:
        found.append(
            _(
                "The model's adjugate experts read the same as its other experts, as their authors describe; "
                "llama.cpp gives them other input and weights, so its replies differ."
            )
        )
    return tuple(found)


def _reads_ahead(checkpoint: Checkpoint) -> bool:
    """Whether HRM-Text was made so; folders do not always say, GGUF files do."""
    if checkpoint.format == "gguf":
        return checkpoint.metadata.get("hrm_text.hrm.prefix_lm") is True
    return checkpoint.metadata["config"].get("prefix_lm") is not False
