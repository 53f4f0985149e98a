"""Embeddings of n-grams: their nodes, and how they are recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.base import Weight
from engine.backends.graph.buffers import Buffer
from engine.backends.graph.nodes import Value
from engine.backends.graph.recurrent import RecurrentOps
from engine.backends.graph.rows import Embed
from engine.backends.ngrams import NGrams
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenNumbers(Value):
    """y = the number of each row's token plus 1, in all columns."""

    INPUTS = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class NGramRows(Value):
    """y = int32 ids of rows, from x (T, size), the numbers of the last tokens plus 1, the latest first."""

    x: Buffer
    ngrams: NGrams


def latest_first(size: int) -> Floats:
    """The weights of a convolution that makes of a number in all of `size` columns those of the last rows."""
    return np.ascontiguousarray(np.eye(size, dtype=np.float32)[::-1])


class NGramRecording(RecurrentOps):
    """`embed_ngrams` of `Ops`."""

    def embed_ngrams(self, part: int, tables: Sequence[Weight], ngrams: NGrams) -> list[Buffer]:
        numbers = self._add(TokenNumbers(y=Buffer(ngrams.size, device=self._device_of_part(part))))
        last = self.convolve(part, numbers, latest_first(ngrams.size))
        made = list[Buffer]()
        for number, table in enumerate(tables):
            own = ngrams.share(number, len(tables))
            ids = self._add(NGramRows(x=last, ngrams=own, y=last.like(own.heads)))
            device = self._device_of(table)
            y = Buffer(own.heads * table.shape[1], device=device)
            embed = Embed(table=table, scale=1.0, ids=self._at(ids, device), heads=own.heads, y=y)
            made.append(self._add(embed))
        return made
