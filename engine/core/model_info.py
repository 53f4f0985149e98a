"""What the headers of a model file say about it."""

from __future__ import annotations

from engine.core.thinking import nearest_level
from engine.lazy_dataclass import dataclass
from engine.printable import one_line
from engine.words import _


@dataclass(frozen=True, slots=True)
class WorkSpace:
    """Bytes that a model's passes take besides weights and cache: `row` for each of the `rows` of a step,
    `position` for each position of the context, and `fixed`.
    """

    rows: int = 0
    row: int = 0
    position: int = 0
    fixed: int = 0

    def bytes(self, context: int) -> int:
        """The bytes for a context of `context` tokens."""
        return min(self.rows, context) * self.row + context * self.position + self.fixed


def assistant_alone(name: str) -> str:
    """Why an assistant cannot be loaded as a model."""
    return _(
        "{name} is an assistant, which drafts for another model and cannot write by itself. Load "
        "that model, and choose the assistant as its draft model.",
        name=name,
    )


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the headers of a model say, and of a loaded model how it runs. Sizes are bytes; texts are safe to
    show; "" and 0 mean unknown or none.
    """

    path: str
    name: str
    """The name to show."""
    architecture: str
    format: str
    """"gguf" or "safetensors"."""
    parameters: int
    bits_per_weight: float
    weights_bytes: int
    layers: int
    context_length: int
    vocab_size: int
    kv_bytes_per_token: int
    stop_token_ids: tuple[int, ...]
    """All ids that end a turn, from generation_config.json or the GGUF metadata."""
    has_chat_template: bool
    kv_shapes: tuple[tuple[int, int], ...] = ()
    """(key/value heads, head dimension) of each layer that has keys and values."""
    keys_alone: int = 0
    """How many of the last of these have keys alone: those of multi-head latent attention, of which values
    are columns, and of indexers.
    """
    picture_shapes: tuple[tuple[int, int], ...] = ()
    """The same of what layers that look at pictures see of these, beside the cache."""
    picture_rows: int = 0
    """How many rows of the largest picture they see."""
    quantisation: str = ""
    """The usual name of the weights' format: "Q4_K", "GPTQ 4-bit", "BF16"."""
    licence: str = ""
    """As the file states it."""
    resident_bytes: int = 0
    """The weights in memory, once loaded on the CPU."""
    offloaded_bytes: int = 0
    """The weights of a loaded model that are kept on the disk; they are not among `resident_bytes`."""
    read_bytes: int = 0
    """The bytes of `resident_bytes` that one decoded token reads."""
    defaults: tuple[tuple[str, float], ...] = ()
    """The sampler settings that the model's authors recommend: (field of `SamplerSettings`, value)."""
    state_bytes: int = 0
    """Bytes of one state of the recurrent layers."""
    cpu_only: str = ""
    """What the model has that there are no GPU kernels for, as "mixtures of more than 512 experts"; "" if
    there is nothing.
    """
    advised_context: int = 0
    """The context in tokens beyond which the model gets worse."""
    plain: tuple[int, int, int, int] = (0, 0, 0, 0)
    """The weights that can be quantised while loading: their number and bytes without the head, and those of
    the head.
    """
    work: WorkSpace = WorkSpace()
    """The work space of the passes on the CPU."""
    backend: str = ""
    """The name of the backend that a loaded model runs on."""
    where: str = ""
    """That backend's `Backend.where`."""
    cache_bytes: int = 0
    """The memory of a GPU that the cache of a loaded model takes."""
    thinking: tuple[tuple[str, str], ...] = ()
    """The (opening, closing) tags that a loaded model may think in, those of its template first."""
    opens_thought: str = ""
    """The tag that closes the thought that prompts leave open."""
    thinking_levels: tuple[tuple[str, str], ...] = ()
    """The levels of `ThinkingSettings.thinking` that the chat template of a loaded model can be switched to,
    weakest first, each with the tag that closes the thought that its prompts leave open; none without a
    switch.
    """
    thinking_default: str = ""
    """The level that the template takes by itself; "" if it is none of `thinking_levels`."""
    mtp: bool = False
    """Whether the file has a head for multi-token prediction, which can draft."""
    mtp_bytes: int = 0
    """Its weights in memory."""
    remarks: tuple[str, ...] = ()
    """Sentences about parts that are left out and arithmetic that others do otherwise."""
    threads: int = 0
    """The CPU threads that a loaded model computes on."""
    pooling: str = ""
    """How an embedding model makes one vector of those of all tokens: "mean", "cls" (the first) or "last"."""
    embedding: bool = False
    """Whether it is an embedding model: it makes vectors of texts, and writes none."""
    assistant: bool = False
    """An assistant, EAGLE-3 or DFlash drafter: it drafts for a model and writes nothing alone."""
    fallback_template: str = ""
    """The general format that replaces a missing chat template ("gemma", "plain"; see
    `engine.text.template.fallback`).
    """
    file_bytes: int = 0
    """The size of the files, headers included."""
    gpu_bytes: int = 0
    """`resident_bytes` on a GPU."""
    gpu_work: WorkSpace = WorkSpace()
    """`work` on a GPU."""
    notice: str = ""
    """A sentence for the user if a loaded model runs otherwise than expected, such as on the CPU though there
    is a GPU.
    """
    report: str = ""
    """Details of `notice`, to be copied."""
    server: str = ""
    """The name and the host of the server that answers, for a remote model; such a model has no file, and
    its `path` is an address (`engine.remote.model_address`).
    """
    host: str = ""
    """The host that text goes to, for a remote model."""
    server_version: str = ""
    """What that server says it is."""
    reads_pictures: bool = False
    """Whether a local model reads pictures."""
    vision_encoder: str = ""
    """The family of its vision encoder, such as "gemma3"."""
    vision_bytes: int = 0
    """The weights of the vision encoder in memory, once a picture was read."""
    vision_file: str = ""
    """The file (mmproj) beside a GGUF model that holds its vision encoder."""
    vision_file_bytes: int = 0
    """The size of that file."""
    lacks_vision_file: bool = False
    """Whether models of its architecture read pictures, but the GGUF file has no such file beside it."""
    lacks: tuple[tuple[str, str], ...] = ()
    """(what, a sentence why not) for what a remote model cannot do: "continue" a reply, write "plain"
    text, tell "probabilities", switch "thinking", take "pictures", call "tools".
    """

    def __post_init__(self) -> None:
        for name in ("name", "architecture", "format", "quantisation", "licence", "notice", "server", "host",
                     "server_version"):  # fmt: skip
            object.__setattr__(self, name, one_line(getattr(self, name)))

    def why_not(self, what: str) -> str:
        """Why the model cannot do something of `lacks`; "" if it can."""
        return dict(self.lacks).get(what, "")

    @property
    def why_no_pictures(self) -> str:
        """Why the model takes no pictures; "" if it does."""
        if self.host:
            return self.why_not("pictures")
        if self.reads_pictures:
            return ""
        if self.lacks_vision_file:
            return _(
                "{name} reads pictures only with its vision encoder, a file whose name begins with “mmproj”. "
                "Download it from the model's page into the model's folder, then reload the model.",
                name=self.name,
            )
        return _(
            "{name} reads text only. For pictures, choose a model with a vision encoder, such as SmolVLM, "
            "Gemma 3 or Qwen3-VL.",
            name=self.name,
        )

    @property
    def why_no_text(self) -> str:
        """Why the model writes no text; "" if it does."""
        if self.assistant:
            return assistant_alone(self.name)
        return (
            _(
                "{name} is an embedding model: it turns texts into vectors, by which passages of files are "
                "found, and cannot write a reply. Choose another model to chat with.",
                name=self.name,
            )
            if self.embedding
            else ""
        )

    @property
    def why_not_thinking(self) -> str:
        """Why thinking cannot be switched; "" if it can."""
        if self.thinking_levels:
            return ""
        return self.why_not("thinking") or _("This model has no switch for thinking.")

    def opened_thought(self, asked: str) -> str:
        """The tag that closes the thought that prompts leave open while `ThinkingSettings.thinking` is
        `asked`.
        """
        opens = dict(self.thinking_levels)
        return opens.get(nearest_level(asked, tuple(opens), self.thinking_default), self.opens_thought)

    @property
    def size(self) -> int:
        """Bytes of the files that hold the weights, as a file manager shows them; with the vision encoder."""
        return (self.file_bytes or self.weights_bytes) + self.vision_file_bytes
