"""Recording: `Ops` that notes nodes instead of computing anything, for every backend with a lowering."""

from __future__ import annotations

from engine.backends.graph.attention import AttentionOps
from engine.backends.graph.linear import LinearOps
from engine.backends.graph.moe import ExpertOps
from engine.backends.graph.ngrams import NGramRecording
from engine.backends.graph.rows import RowOps


class Recorder(RowOps, LinearOps, AttentionOps, ExpertOps, NGramRecording):
    """`Ops` that notes nodes."""
