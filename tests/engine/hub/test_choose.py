"""Which files make a choice, which choices fit, and which is recommended; names are real ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends import choice as devices
from engine.backends.choice import Gpu, Usable
from engine.errors import DownloadError
from engine.hub.catalogue import choose
from engine.hub.catalogue.choose import choices_of, free_memories
from engine.hub.catalogue.models import HubChoice, HubFile, HubFiles, HubModel
from engine.hub.download.disk import free_disk
from engine.hub.download.partial_dir import check_names, folder_name, local_name
from engine.settings import LoadSettings
from engine.weights.packed.table import METHODS

GIB = 1 << 30


def listing(names: Iterable[str | tuple[str, int]], **facts: object) -> HubFiles:
    files = [
        HubFile(name, 1000, "ab" * 32) if isinstance(name, str) else HubFile(name[0], name[1], "ab" * 32)
        for name in names
    ]
    return HubFiles(HubModel("author/model", "author", **facts), "a" * 40, tuple(files))  # type: ignore[arg-type]


def choices(
    names: Iterable[str | tuple[str, int]], memory: int = 64 * GIB, disk: int = 640 * GIB, **facts: object
) -> list[HubChoice]:
    return choices_of(listing(names, **facts), [memory], disk)


def titles(found: list[HubChoice]) -> set[str]:
    return {choice.title for choice in found}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("SmolLM2-135M-Instruct-Q4_K_M.gguf", "Q4_K_M"), ("llama-2-7b.Q5_0.gguf", "Q5_0"),
        ("Phi-3-mini-4k-instruct-q4.gguf", "Q4"),
        ("Phi-3-mini-4k-instruct-fp16.gguf", "F16"), ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("m-UD-IQ1_S.gguf", "UD-IQ1_S"),
        ("Meta-Llama-3.1-8B-Instruct-Q6_K_L.gguf", "Q6_K_L"), ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model.i1-IQ3_XXS.gguf", "IQ3_XXS"),
        ("qwen2.5-0.5b-instruct-q5_k_m.gguf", "Q5_K_M"), ("m-TQ1_0.gguf", "TQ1_0"),
        ("m-IQ4_NL.gguf", "IQ4_NL"), ("m-bf16.gguf", "BF16"),
        ("Q2_K/thing-Q8_0.gguf", "Q8_0"), ("m-F32.gguf", "F32"), ("m_q8_0.gguf", "Q8_0"),
        ("m-Q4_K.gguf", "Q4_K"),
        ("m-Q3_K_XL.gguf", "Q3_K_XL"), ("tinyllama.gguf", "tinyllama"),
        ("Qwen2.5-Coder-0.5B-DRAFT-Q4_0.gguf", "Q4_0"), ("a-LoRA-merged-Q4_1.gguf", "Q4_1"),
    ],
)  # fmt: skip
def test_titles_of_gguf_files(name: str, title: str) -> None:
    assert titles(choices([name])) == {title}


@pytest.mark.parametrize(
    "name",
    [
        "imatrix.gguf", "imatrix_unsloth.gguf",
        "x.imatrix", "model-Q4_0_4_8.gguf",
        "pytorch_model.bin", "model.pt", "my-lora-f16.gguf", "adapter.gguf", "ggml-vocab-llama.gguf",
        "model.gguf.part1of2", "README.md",
        "model-00001-of-00002.gguf", "weights.ckpt", "model.safetensors",
    ],
)  # fmt: skip
def test_never_chosen(name: str) -> None:
    """Alone, such a file leaves nothing to choose; beside a model it is not downloaded."""
    with pytest.raises(DownloadError, match="The model author/model has "):
        choices([name])
    (choice,) = choices([name, "model-Q4_K_M.gguf"])
    assert [file.name for file in choice.files] == ["model-Q4_K_M.gguf"]


def test_a_vision_encoder_comes_with_each_gguf_model() -> None:
    encoders = ["mmproj-F32.gguf", "mmproj-BF16.gguf", "model-mmproj-Q8_0.gguf", "mmproj-Q4_0.gguf"]
    for count, name in ((4, "mmproj-BF16.gguf"), (1, "mmproj-F32.gguf")):
        plain = choices(["a-Q4_0.gguf", "a-Q8_0.gguf", "config.json"])
        found = choices([*encoders[:count], "a-Q4_0.gguf", "a-Q8_0.gguf", "config.json"])
        assert [[file.name for file in one.files] for one in found] == [
            ["a-Q4_0.gguf", name], ["a-Q8_0.gguf", name],
        ]  # fmt: skip
        assert [(one.bytes, one.vision_bytes) for one in found] == [(2000, 1000)] * 2
        assert [(one.recommended, one.memory_bytes) for one in found] == [
            (one.recommended, one.memory_bytes) for one in plain
        ]
    with pytest.raises(DownloadError):
        choices(["mmproj-F16.gguf"])
    (folder,) = choices(["mmproj-F16.gguf", "model.safetensors", "config.json"])
    assert (folder.format, folder.vision_bytes) == ("safetensors", 0)


def test_all_parts_of_a_quantisation_together() -> None:
    parts = [f"BF16/big-BF16-0000{number}-of-00003.gguf" for number in (3, 1, 2)]
    others = [
        "big-Q8_0-00001-of-00002.gguf",
        "big-Q8_0-00002-of-00002.gguf",
        "big-Q2_K-00002-of-00002.gguf",
        "big-Q4_0.gguf",
    ]
    found = choices([*parts, *others])
    assert {choice.title: [local_name(file) for file in choice.files] for choice in found} == {
        "BF16": [f"big-BF16-0000{number}-of-00003.gguf" for number in (1, 2, 3)],
        "Q8_0": ["big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf"],
        "Q4_0": ["big-Q4_0.gguf"],
    }
    assert {choice.title: choice.bytes for choice in found} == {"BF16": 3000, "Q8_0": 2000, "Q4_0": 1000}


def test_whole_rather_than_in_parts() -> None:
    (choice,) = choices(["m-Q8_0.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"])
    assert [file.name for file in choice.files] == ["m-Q8_0.gguf"]


def test_several_models_in_one_repository() -> None:
    assert titles(choices(["small-Q4_0.gguf", "large-Q4_0.gguf", "large-Q8_0.gguf"])) == {
        "small-Q4_0",
        "large-Q4_0",
        "Q8_0",
    }


SMALL = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "merges.txt",
         "vocab.json", "tokenizer.model", "chat_template.jinja", "additional_chat_templates/rag.jinja",
         "README.md", "LICENSE"]  # fmt: skip
OTHERS = ["pytorch_model.bin", "modeling_own.py", "flax_model.msgpack", "tf_model.h5", "onnx/model.onnx",
    "original/consolidated.00.pth",
          "original/params.json", ".gitattributes", "optimizer.pt", "runs/events.out",
          "adapter_model.safetensors"]  # fmt: skip


def test_safetensors_with_config_and_tokenizer() -> None:
    (choice,) = choices([*SMALL, *OTHERS, "model.safetensors"])
    assert choice.title == "Safetensors"
    assert choice.format == "safetensors"
    assert [file.name for file in choice.files] == ["model.safetensors", *SMALL]
    assert choice.bytes == 1000 * (1 + len(SMALL))


def test_sharded_safetensors_with_their_index() -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    names = ["config.json", "model.safetensors.index.json", "consolidated.safetensors", *shards]
    (choice,) = choices(names)
    assert {file.name for file in choice.files} == {"config.json", "model.safetensors.index.json", *shards}
    with pytest.raises(DownloadError, match=r"parts or config\.json are missing"):
        choices(["config.json", "model.safetensors.index.json", shards[1]])


LEFT = [
    "training_args.bin",
    "optimizer.bin",
    "scheduler.pt",
    "pytorch_model.pt",
    "rng_state.pth",
    "old/pytorch_model.bin",
]


def test_pytorch_s_own_file_where_nothing_else_is() -> None:
    (choice,) = choices([*SMALL, *LEFT, "pytorch_model.bin", "modeling_own.py"])
    assert (choice.title, choice.format, choice.bytes) == ("PyTorch", "pytorch", 1000 * (1 + len(SMALL)))
    assert [file.name for file in choice.files] == ["pytorch_model.bin", *SMALL]
    both = choices(["config.json", "pytorch_model.bin", "model.safetensors", "m-Q4_0.gguf"])
    assert titles(both) == {"Safetensors", "Q4_0"}
    assert titles(choices(["config.json", "pytorch_model.bin", "m-Q4_0.gguf"])) == {"PyTorch", "Q4_0"}


def test_pytorch_s_own_files_in_parts() -> None:
    parts = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    index, other = "pytorch_model.bin.index.json", "model.safetensors.index.json"
    (choice,) = choices(["config.json", index, other, *parts])
    assert [file.name for file in choice.files] == [*parts, "config.json", index]
    with pytest.raises(DownloadError, match=r"parts or config\.json are missing"):
        choices(["config.json", index, parts[1]])


def test_memory_for_pytorch_s_own_files() -> None:
    (choice,) = choices(["config.json", ("pytorch_model.bin", 4 * GIB), ("tokenizer.json", 1 << 20)])
    assert 4 * GIB < choice.memory_bytes < 6 * GIB
    assert choice.recommended


def test_weights_as_mistral_ai_publishes_them() -> None:
    """With params.json instead of config.json; whole or in parts, and nothing else that ends like weights."""
    own = ["params.json", "tekken.json", "tokenizer.model.v3"]
    (choice,) = choices([*own, "consolidated.safetensors", "lora.safetensors", "extra.safetensors"])
    assert choice.title == "Safetensors"
    assert {file.name for file in choice.files} == {*own, "consolidated.safetensors"}
    parts = [f"consolidated-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (choice,) = choices([*own, *parts, "consolidated.safetensors.index.json"])
    assert {file.name for file in choice.files} == {*own, *parts, "consolidated.safetensors.index.json"}
    with pytest.raises(DownloadError, match=r"parts or config\.json are missing"):
        choices([*own, "model.safetensors"])
    with pytest.raises(DownloadError, match=r"parts or config\.json are missing"):
        choices([*own, parts[0], "consolidated.safetensors.index.json"])


def test_the_same_weights_twice() -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (whole,) = choices(["config.json", "model.safetensors", "model.fp16.safetensors", *shards])
    assert {file.name for file in whole.files} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize(
    "names",
    [
        ["gptq_model-4bit-128g.safetensors"],
        ["output-00001-of-00002.safetensors", "output-00002-of-00002.safetensors"],
    ],
)
def test_weights_with_names_of_quantisers(names: list[str]) -> None:
    (choice,) = choices(["config.json", *names])
    assert {file.name for file in choice.files} == {"config.json", *names}


@pytest.mark.parametrize("facts", [{"quantisation": "bitsandbytes"}, {"tags": ("mlx", "4-bit")}])
def test_quantised_weights_of_other_programs(facts: dict[str, object]) -> None:
    assert titles(choices(["config.json", "model.safetensors"], **facts)) == {"Safetensors"}


@pytest.mark.parametrize("method", ["higgs", "spqr", "fp_quant", "sinq", "fouroversix", "eetq"])
def test_weights_that_no_reader_knows_are_not_offered(method: str) -> None:
    with pytest.raises(DownloadError, match=f"quantised for {method}, which are not supported"):
        choices(["config.json", "model.safetensors"], quantisation=method)
    offered = choices(["config.json", "model.safetensors", "m-Q4_0.gguf"], quantisation=method)
    assert titles(offered) == {"Q4_0"}


@pytest.mark.parametrize("method", ["", "intel/auto-round", *METHODS])
def test_weights_that_a_reader_knows_are_offered(method: str) -> None:
    assert titles(choices(["config.json", "model.safetensors"], quantisation=method)) == {"Safetensors"}


def test_both_formats_in_one_repository() -> None:
    assert titles(choices(["config.json", "model.safetensors", "m-Q4_0.gguf"])) == {"Safetensors", "Q4_0"}


@pytest.mark.parametrize(
    ("names", "facts", "found"),
    [
        (["config.json", "consolidated.00.pth", "weights.bin"], {}, "only PyTorch files of other names"),
        (["pytorch_model.bin", "README.md"], {}, "an incomplete language model"),
        (["adapter_config.json", "adapter_model.bin"], {}, "only an adapter"),
        (["config.json", "pytorch_model.bin"], {"quantisation": "spqr"}, "quantised for spqr"),
        (["README.md"], {}, "has no weights"),
        (["adapter_config.json", "adapter_model.safetensors"], {}, "only an adapter"),
        (["unet/model.safetensors", "model_index.json"], {}, "an incomplete language model"),
        (["config.json", "model.safetensors"], {"quantisation": "spqr"}, "quantised for spqr"),
    ],
)  # fmt: skip
def test_nothing_to_choose(names: list[str], facts: dict[str, object], found: str) -> None:
    with pytest.raises(DownloadError, match=found):
        choices(names, **facts)


SIZES = [
    ("m-Q2_K.gguf", 3 * GIB), ("m-Q4_K_M.gguf", 5 * GIB), ("m-IQ3_M.gguf", 4 * GIB),
    ("m-Q8_0.gguf", 17 * GIB // 2), ("m-BF16.gguf", 16 * GIB),
]  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "disk", "best"),
    [
        (64, 640, "Q8_0"),
        (8, 640, "Q4_K_M"),
        (5.5, 640, "Q2_K"),
        (2, 640, None),
        (64, 6, "Q4_K_M"),
        (10, 9, "Q8_0"),
        (64, 1, None),
    ],
)
@pytest.mark.parametrize("parameters", [0, 8 * GIB])
def test_the_best_that_fits(memory: float, disk: float, best: str | None, parameters: int) -> None:
    found = choices(SIZES, int(memory * GIB), int(disk * GIB), parameters=parameters)
    assert [choice.title for choice in found if choice.recommended] == ([best] if best else [])
    assert [choice.bytes for choice in found] == sorted(size for _, size in SIZES)
    for choice in found:
        assert choice.fits_memory == (choice.memory_bytes <= memory * GIB)
        assert choice.fits_disk == (choice.bytes + (32 << 20) <= disk * GIB)
        assert choice.fits == (choice.fits_memory and choice.fits_disk)
        assert choice.memory_bytes > choice.bytes


@pytest.mark.parametrize(
    ("rooms", "best"),
    [
        ((8, 64), "Q4_K_M"),
        ((24, 8), "Q8_0"),
        ((4, 64), "Q8_0"),
        ((2, 64), "Q8_0"),
        ((4, 5), "Q2_K"),
        ((4, 6.1), "Q4_K_M"),
        ((2, 3), None),
    ],
)
@pytest.mark.parametrize("parameters", [0, 8 * GIB])
def test_the_best_device_that_fits_a_good_one(
    rooms: tuple[float, ...], best: str | None, parameters: int
) -> None:
    found = choices_of(listing(SIZES, parameters=parameters), [int(room * GIB) for room in rooms], 640 * GIB)
    assert [choice.title for choice in found if choice.recommended] == ([best] if best else [])
    for choice in found:
        assert choice.fits_memory == (choice.memory_bytes <= max(rooms) * GIB)


def test_the_memory_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Usable((Gpu(0, "NVIDIA L4", 24 * GIB, 20 * GIB), Gpu(1, "NVIDIA L4", 24 * GIB, 23 * GIB)))
    monkeypatch.setattr(devices, "usable_gpus", lambda: gpus)
    monkeypatch.setattr(devices, "free_memory", lambda: 99 * GIB)
    half = GIB // 2  # left to the screen
    assert free_memories(LoadSettings()) == [23 * GIB - half, 43 * GIB - 2 * half, 99 * GIB]
    assert free_memories(LoadSettings(backend="cpu")) == [99 * GIB]
    assert free_memories(LoadSettings(backend="cuda", gpus="0")) == [20 * GIB - half]
    assert free_memories(LoadSettings(backend="cuda", gpus="7")) == free_memories(LoadSettings())


def test_memory_of_types_that_are_unpacked() -> None:
    """Eight billion weights take about 4 bits each, whatever the file's size; and a tenth, and 512 MiB."""
    for name, size in (("m-IQ3_M.gguf", 3.7), ("m-UD-IQ2_XXS.gguf", 2.4), ("m-IQ1_S.gguf", 1.7)):
        (choice,) = choices([(name, int(size * GIB))])
        assert 4.9 * GIB <= choice.memory_bytes <= 5.9 * GIB


def test_only_sixteen_bits_are_better_than_nothing() -> None:
    assert [
        choice.title
        for choice in choices([("m-F16.gguf", GIB), ("m-F32.gguf", 2 * GIB)])
        if choice.recommended
    ] == ["F16"]


def test_a_missing_size_is_reported() -> None:
    with pytest.raises(DownloadError, match=r"does not state the size of m-Q4_0\.gguf"):
        choices([("m-Q4_0.gguf", -1)])


@pytest.mark.parametrize(
    "name",
    ["../m-Q4_0.gguf", "/etc/m-Q4_0.gguf", "a/../../m.gguf", "a\\..\\m.gguf", "C:m.gguf", "a//m.gguf",
    ".ssh/m.gguf", "./m.gguf",
     "con.gguf", "m\n.gguf", "a/..", "x" * 300 + ".gguf", "a. /m.gguf", "m\x00.gguf", "NUL/m.gguf",
     "~/../m.gguf"],
)  # fmt: skip
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(DownloadError, match=r"is not a safe file name; nothing was downloaded\.$"):
        check_names([HubFile(name, 1)])
    if name.endswith(".gguf"):
        with pytest.raises(DownloadError, match="not a safe file name"):
            choices([name])


def test_names_that_collide_on_some_systems() -> None:
    with pytest.raises(DownloadError, match="twice"):
        check_names([HubFile("a.json", 1), HubFile("A.JSON", 1)])
    with pytest.raises(DownloadError, match="twice"):
        check_names([HubFile("x/a.gguf", 1), HubFile("y/a.gguf", 1)])


@pytest.mark.slow
@given(st.text(max_size=40), st.text(min_size=1, max_size=60))
def test_every_accepted_name_stays_in_its_folder(first: str, second: str) -> None:
    name = f"{first}/{second}" if first else second
    try:
        check_names([HubFile(name, 1)])
    except DownloadError:
        return
    inside = (Path("/top/folder") / local_name(HubFile(name, 1))).resolve()
    assert inside.is_relative_to("/top/folder")
    assert inside != Path("/top/folder")


@given(
    st.sets(
        st.tuples(st.text("abAB./ -_é", min_size=1, max_size=12), st.text("abAB./ -_é", max_size=170)),
        min_size=2,
        max_size=6,
    )
)
def test_folders_of_different_choices_differ(kinds: set[tuple[str, str]]) -> None:
    made = [HubChoice(model, "a" * 40, title, "gguf", (), 0) for model, title in kinds]
    names = {f"{choice.model_id}--{choice.title}".replace("/", "--"): folder_name(choice) for choice in made}
    assert len(set(names.values())) == len(names)
    assert all(
        name and not name.startswith(".") and len(name.encode()) <= 200 and "/" not in name
        for name in names.values()
    )


def test_free_disk_of_a_missing_folder(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "there") == pytest.approx(free_disk(tmp_path), rel=0.2)


@pytest.mark.parametrize(("method", "growth"), [("exl3", 4), ("aqlm", 8), ("vptq", 8)])
def test_memory_of_what_is_decoded(method: str, growth: int) -> None:
    """Its matrices are held as F16."""
    files = ["config.json", ("model.safetensors", 3 * GIB)]
    (packed,), (plain,) = choices(files, quantisation=method), choices(files, quantisation="exl2")
    assert packed.bytes == plain.bytes
    assert 3 * growth * GIB < packed.memory_bytes < 3.7 * growth * GIB
    assert plain.memory_bytes < 4 * GIB


def test_branches_are_titles_where_the_main_one_has_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch of several choices adds their own titles, and one without any is passed over."""
    branches = {
        "main": ["README.md"], "4.0bpw": ["config.json", ("model.safetensors", 4 * GIB)],
        "gguf": [("m-Q4_0.gguf", 3 * GIB), ("m-Q8_0.gguf", 5 * GIB)], "empty": ["README.md"],
    }  # fmt: skip
    monkeypatch.setattr(choose, "free_memories", lambda _load: [64 * GIB])
    monkeypatch.setattr(choose, "free_disk", lambda _folder: 640 * GIB)
    monkeypatch.setattr(choose, "model_files", lambda _id, name="main", stop=None: listing(branches[name]))
    monkeypatch.setattr(choose, "model_branches", lambda _id, stop=None: [*branches][1:])
    found = choose.model_choices("author/model")
    assert [choice.title for choice in found] == ["gguf Q4_0", "4.0bpw", "gguf Q8_0"]
    assert sum(choice.recommended for choice in found) == 1
    del branches["4.0bpw"], branches["gguf"]
    with pytest.raises(choose.NothingToChoose):
        choose.model_choices("author/model")
