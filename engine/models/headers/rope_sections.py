"""The sections of rotary positions in models that read pictures (M-RoPE, arXiv 2409.12191, section 2.1)."""

from __future__ import annotations

from dataclasses import replace

from engine.models.layers.positions.rope import RopeConfig


def divided(rope: RopeConfig, sections: object, interleaved: bool) -> RopeConfig:
    """The rope with the sections that a file states; others than of all pairs are left out, since texts do
    not need them.
    """
    if not isinstance(sections, list) or not all(type(each) is int and each >= 0 for each in sections):
        return rope
    time, rows, columns, *rest = (*sections, 0, 0, 0)
    if any(rest) or time + rows + columns != rope.dim // 2:
        return rope
    return replace(rope, sections=(time, rows, columns), sections_interleaved=interleaved)


def usual_sections(
    rope: RopeConfig | None, usual: tuple[int, int, int], *, interleaved: bool
) -> RopeConfig | None:
    """The rope of a family whose sections of M-RoPE are the `usual` ones where config.json states none, and
    always, or never, `interleaved`.
    """
    if rope is None:
        return None
    found = divided(rope, list(rope.sections or usual), interleaved)
    return found if found.sections is None else replace(found, sections_interleaved=interleaved)
