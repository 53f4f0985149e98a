"""Which vision encoder belongs to a model, and what damaged files are told."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import Idefics3Config, Idefics3ForConditionalGeneration
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from engine.backends.cpu.backend import CpuBackend
from engine.chat import open_chat
from engine.core import Loading
from engine.drain import drain
from engine.errors import BadCheckpoint, Cancelled, ModelNotFound, NotEnoughMemory, UnsupportedModel
from engine.models.describe import describe_text_model
from engine.settings import LoadSettings
from engine.vision import VisionSpec
from engine.vision.describe import describe, other_senses
from engine.vision.opening import open_vision, vision_layouts, vision_spec
from engine.weights import open_checkpoint
from engine.weights.gguf.ollama import known_name
from tests.engine.models.architectures import write_case_gguf, write_checkpoint
from tests.engine.models.cases.table import CASES
from tests.engine.vision.tiny.converted import encoder_tensors, write_tower
from tests.engine.vision.tiny.encoding import TEXT, randomise, save
from tests.engine.vision.tiny.mmproj import write_file, write_model
from tests.tiny import TINY, write_gguf

Change = Callable[[dict[str, Any]], None]
WIDTH = TEXT["hidden_size"]
QWEN = next(case for case in CASES if case.variant == "in Qwen2.5-VL")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Idefics3."""
    vision = {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 7,
    }  # fmt: skip
    config = Idefics3Config(
        vision_config=vision, text_config={"model_type": "llama", **TEXT}, image_token_id=3
    )
    processor = Idefics3ImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    model = randomise(Idefics3ForConditionalGeneration(config))
    return save(model, processor, tmp_path_factory.mktemp("idefics3"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(made, tmp_path / "model"))


def spec_of(path: Path) -> VisionSpec | None:
    with closing(open_checkpoint(path)) as checkpoint:
        return vision_spec(checkpoint)


def change_json(path: Path, change: Change) -> None:
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values), "utf-8")


def test_loading_begins_with_the_number_of_layers(made: Path) -> None:
    with closing(open_checkpoint(made)) as checkpoint, closing(open_vision(checkpoint)) as loading:
        assert next(loading) == Loading("Loading the vision encoder", 0, 2)


def test_an_encoder_for_which_there_is_no_memory(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "free_memory", lambda _self: 1000)
    with (
        closing(open_checkpoint(made)) as checkpoint,
        pytest.raises(NotEnoughMemory, match="but 1 kB are free"),
    ):
        drain(open_vision(checkpoint))


# -- mmproj files beside a model


def write_encoder(made: Path, folder: Path, name: str, width: int = WIDTH, **keys: Any) -> Path:
    """An mmproj file of this name for models of this width."""
    config = Idefics3Config.from_pretrained(made)
    tensors = encoder_tensors(made)
    tensors["mm.model.fc.weight"] = np.resize(tensors["mm.model.fc.weight"], (width, 4 * 24))
    scratch = folder / "scratch"
    scratch.mkdir()
    write_tower(
        scratch, keys.pop("kind", "idefics3"), config.vision_config, width, tensors,
        **{"projector__scale_factor": 2, "clip__use_gelu": True, **keys},
    )  # fmt: skip
    (scratch / "mmproj-model-f32.gguf").rename(folder / name)
    shutil.rmtree(scratch)
    return folder / name


def model_beside(folder: Path, name: str, width: int = WIDTH, tokens: list[str] | None = None) -> Path:
    more = {} if tokens is None else {"tokenizer__ggml__tokens": tokens}
    return write_model(folder / name, "llama", width, **more)


def file_of(model: Path) -> str:
    """The name of the file that a model's encoder is in; empty without one."""
    with closing(open_checkpoint(model)) as checkpoint:
        found = vision_layouts(checkpoint)
        return "" if found is None or found.file is None else found.file.name


def test_a_file_of_the_models_width(made: Path, tmp_path: Path) -> None:
    write_encoder(made, tmp_path, "mmproj-a.gguf", 48)
    write_encoder(made, tmp_path, "model-b-mmproj.gguf", WIDTH)
    write_encoder(made, tmp_path, "mmproj-c.gguf", 56)
    assert file_of(model_beside(tmp_path, "model-a.gguf")) == "model-b-mmproj.gguf"
    assert file_of(model_beside(tmp_path, "model-d.gguf", 44)) == ""


def test_of_several_the_one_whose_name_is_most_alike(made: Path, tmp_path: Path) -> None:
    for name in ("mmproj-Tiny-1B-f16.gguf", "Tiny-2B.mmproj-f16.gguf", "mmproj.gguf"):
        write_encoder(made, tmp_path, name)
    assert file_of(model_beside(tmp_path, "tiny-2b-Q4_0.gguf")) == "Tiny-2B.mmproj-f16.gguf"
    assert file_of(model_beside(tmp_path, "Tiny-1B-Q4_0.gguf")) == "mmproj-Tiny-1B-f16.gguf"


def test_a_text_model_of_the_same_width_in_the_same_folder(made: Path, tmp_path: Path) -> None:
    write_encoder(made, tmp_path, "mmproj-other-f16.gguf")
    assert file_of(model_beside(tmp_path, "text.gguf", tokens=["a", "b"])) == ""
    assert file_of(model_beside(tmp_path, "eyes.gguf", tokens=["a", "<image>"])) == "mmproj-other-f16.gguf"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("mmproj-model-f16.gguf", True), ("mmproj.gguf", True), ("ggml-mmproj-Q8_0.gguf", True),
        ("mmproj-llava-f16.gguf", True), ("mmproj-other-f16.gguf", False),
    ],
)  # fmt: skip
def test_an_encoder_without_a_token_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path, name: str, own: bool
) -> None:
    """As LLaVA's: by a beginning like the model's, or a name that says nothing."""
    monkeypatch.setattr("engine.vision.opening._WITHOUT_TOKEN", ("idefics3",))
    write_encoder(made, tmp_path, name)
    model = model_beside(tmp_path, "llava-7b.gguf", tokens=["a", "b"])
    assert file_of(model) == (name if own else "")


# -- Ollama's blobs


def pulled(made: Path, store: Path, *parts: str, width: int = TINY.width) -> tuple[Path, Path]:
    """The blobs of a model and of an encoder for models of this width, in Ollama's folder, whose manifest
    names both, or only the `parts` of the two. The model's vocabulary does not have the encoder's token.
    """
    blobs, manifest = store / "blobs", store / "manifests/registry.ollama.ai/library/eyes/latest"
    blobs.mkdir(parents=True)
    manifest.parent.mkdir(parents=True)
    digests = {"model": "a" * 64, "projector": "b" * 64}
    layers = [
        {"mediaType": f"application/vnd.ollama.image.{part}", "digest": f"sha256:{digests[part]}"}
        for part in parts or digests
    ]
    manifest.write_text(json.dumps({"layers": layers}), "utf-8")
    model = write_gguf(blobs / f"sha256-{digests['model']}")
    return model, write_encoder(made, blobs, f"sha256-{digests['projector']}", width)


def test_the_encoder_that_ollamas_manifest_names(made: Path, tmp_path: Path) -> None:
    model, encoder = pulled(made, tmp_path)
    bad = tmp_path / "manifests/registry.ollama.ai/library/bad/latest"
    bad.parent.mkdir()
    bad.write_text("{", "utf-8")
    info = describe(model)
    assert (info.reads_pictures, info.name) == (True, "eyes:latest")
    assert (info.vision_file, info.vision_file_bytes) == (str(encoder), encoder.stat().st_size)
    with closing(open_checkpoint(model)) as checkpoint, closing(drain(open_vision(checkpoint))) as opened:
        assert opened.spec == spec_of(model)


def test_an_encoder_that_ollamas_manifest_does_not_name_or_that_does_not_fit(
    made: Path, tmp_path: Path
) -> None:
    assert file_of(pulled(made, tmp_path / "a", "model")[0]) == ""
    assert file_of(pulled(made, tmp_path / "b", width=44)[0]) == ""


def test_an_encoder_of_ollamas_that_is_damaged_or_missing(made: Path, tmp_path: Path) -> None:
    model, encoder = pulled(made, tmp_path)
    encoder.write_bytes(encoder.read_bytes()[:900])
    with pytest.raises(BadCheckpoint, match=r"^eyes:latest \(vision encoder\)") as raised:
        spec_of(model)
    assert "sha256" not in str(raised.value)
    info = describe(model)
    assert (info.reads_pictures, len(info.remarks)) == (False, 1)
    assert known_name(encoder.with_name(f"sha256-{'c' * 64}")) == f"sha256-{'c' * 64}"  # nobody's
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(BadCheckpoint, match=r"^eyes:latest"):
        open_checkpoint(model)
    write_gguf(model)
    encoder.unlink()
    assert file_of(model) == ""


def test_sentences_about_ollamas_models_say_what_was_pulled(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _encoder = pulled(made, tmp_path)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled, match=r"^Loading eyes:latest was stopped\.$"):
        drain(open_chat(model, stop=stop))
    monkeypatch.setattr(CpuBackend, "free_memory", lambda _backend: 1000)
    with pytest.raises(NotEnoughMemory, match=r"^eyes:latest needs"):
        drain(open_chat(model, LoadSettings(backend="cpu")))
    model.unlink()
    with pytest.raises(ModelNotFound, match=rf"^There is no file or folder eyes:latest \({model}\);"):
        open_checkpoint(model)


@pytest.mark.parametrize(("part", "lacks"), [("model", True), ("projector", False)])
def test_a_model_of_ollamas_whose_manifest_names_no_encoder_lacks_one(
    made: Path, tmp_path: Path, part: str, lacks: bool
) -> None:
    """One that is named is there, even if it cannot be run; one beside it is another model's."""
    model, encoder = pulled(made, tmp_path, "model", *({part} - {"model"}))
    write_case_gguf(QWEN, write_checkpoint(QWEN, tmp_path / "folder"), model)
    write_encoder(made, model.parent, encoder.name, kind="a-projector-of-tomorrow")
    info = describe(model)
    assert (info.reads_pictures, info.lacks_vision_file, info.remarks) == (False, lacks, ())


# -- files that are no encoder


def test_other_files_are_passed_over(made: Path, tmp_path: Path) -> None:
    write_encoder(made, tmp_path, "mmproj-unknown.gguf", kind="a-projector-of-tomorrow")
    write_file(tmp_path / "mmproj-text.gguf", "llama", {}, {"a": np.ones(4)})
    model = model_beside(tmp_path, "model.gguf")
    assert spec_of(model) is None
    with closing(open_checkpoint(model)) as checkpoint, pytest.raises(UnsupportedModel, match="mmproj file"):
        drain(open_vision(checkpoint))
    write_encoder(made, tmp_path, "mmproj-good.gguf")
    assert file_of(model) == "mmproj-good.gguf"


def test_a_damaged_file_beside_a_good_one(made: Path, tmp_path: Path) -> None:
    model = model_beside(tmp_path, "model.gguf")
    whole = write_encoder(made, tmp_path, "mmproj-model.gguf").read_bytes()
    (tmp_path / "mmproj-model.gguf").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(BadCheckpoint):
        spec_of(model)
    write_encoder(made, tmp_path, "mmproj-other.gguf")
    assert file_of(model) == "mmproj-other.gguf"


@pytest.mark.parametrize(
    ("name", "layers", "lacks"),
    [
        ("qwen2vl", 1, True), ("qwen3vl", 1, True), ("qwen3vlmoe", 1, True), ("cogvlm", 1, True),
        ("glm4v", 1, True), ("glm4v_moe", 1, True), ("llama4", 1, True), ("pixtral", 1, True),
        ("gemma3", 26, False), ("gemma3", 33, False), ("gemma3", 34, True), ("llama", 34, False),
    ],
)  # fmt: skip
def test_a_model_whose_vision_encoder_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, layers: int, lacks: bool
) -> None:
    """The library says so; any mmproj file beside it may be the one."""
    with closing(open_checkpoint(write_gguf(tmp_path / "a.gguf"))) as checkpoint:
        info = replace(describe_text_model(checkpoint), layers=layers)
    path = write_model(tmp_path / "model.gguf", name, WIDTH)
    monkeypatch.setattr("engine.vision.describe.describe_text_model", lambda *_all, **_more: info)
    monkeypatch.setattr("engine.vision.opening.vision_layouts", lambda _checkpoint, _tokens: None)
    assert describe(path).lacks_vision_file == lacks
    (tmp_path / "mmproj-other.gguf").write_bytes(b"")
    assert not describe(path).lacks_vision_file


# -- folders


@pytest.mark.parametrize("ears", [False, True])
def test_sounds_beside_pictures_that_are_read(folder: Path, ears: bool) -> None:
    if ears:
        change_json(folder / "config.json", lambda config: config.update(audio_config={"hidden_size": 8}))
    with closing(open_checkpoint(folder)) as checkpoint:
        said = other_senses(checkpoint, reads=True)
    assert said == (("The model also takes sounds, which are not used here.",) if ears else ())


def test_a_folder_says_what_its_encoder_is(folder: Path) -> None:
    found = spec_of(folder)
    assert found is not None
    assert (found.family, found.token, found.bidirectional) == ("idefics3", "<image>", False)
    with closing(open_checkpoint(folder)) as checkpoint:
        encoder = drain(open_vision(checkpoint, 1))
    assert encoder.spec == found
    assert found.nbytes > sum(each.nbytes for each in encoder_tensors(folder).values()) * 0.9
    encoder.close()


def test_settings_of_pictures_in_either_file_or_none(folder: Path) -> None:
    first, second = folder / "preprocessor_config.json", folder / "processor_config.json"
    settings = json.loads(first.read_text("utf-8"))

    def layout() -> Any:
        with closing(open_checkpoint(folder)) as checkpoint:
            found = vision_layouts(checkpoint)
            assert found is not None
            return found.layout(100, 60)

    expected = layout()
    first.rename(folder / "kept")
    second.write_text(json.dumps({"image_processor": settings, "processor_class": "Idefics3"}), "utf-8")
    assert layout() == expected
    second.unlink()
    assert layout() != expected  # the class's own sizes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 5}, "width is 24, but a multiple of num_attention_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"hidden_size": 26}, "shape"),
        ({"intermediate_size": 41}, "shape"),
        ({"num_hidden_layers": 3}, "lacks tensors"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"image_size": 35}, "shape"),
        ({"image_size": 10**9}, "image_size is 1000000000"),
        ({"image_size": [28, 56]}, r"image_size is \[28, 56\]"),
        ({"patch_size": 5}, "a multiple of"),
        ({"patch_size": 14}, "shape"),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps"),
    ],
)
def test_headers_of_a_tower_that_contradict_its_tensors(
    folder: Path, change: dict[str, Any], words: str
) -> None:
    change_json(folder / "config.json", lambda config: config["vision_config"].update(change))
    with pytest.raises(BadCheckpoint, match=words):
        spec_of(folder)


def test_an_activation_that_is_not_known(folder: Path) -> None:
    change_json(folder / "config.json", lambda config: config["vision_config"].update(hidden_act="magic"))
    with pytest.raises(UnsupportedModel, match="activation 'magic'"):
        spec_of(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_mean": [0.5, 0.5]}, "image_mean is"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std is"),
        ({"image_mean": "grey"}, "image_mean is 'grey'"),
        ({"resample": 9}, "resample is 9"),
        ({"size": 56}, "size is 56"),
        ({"size": {"longest_edge": 0}}, "longest_edge is 0"),
        ({"size": {"longest_edge": 16000}}, "a side of 16000 pixels into tiles of 28"),
        ({"max_image_size": {"longest_edge": 27}}, "a multiple of"),
        ({"max_image_size": {"longest_edge": 14000}}, "4000000 patches"),
        ({"do_rescale": "yes"}, "do_rescale is 'yes'"),
    ],
)
def test_settings_of_pictures_that_cannot_be(folder: Path, change: dict[str, Any], words: str) -> None:
    change_json(folder / "preprocessor_config.json", lambda settings: settings.update(change))
    with pytest.raises(BadCheckpoint, match=words):
        spec_of(folder)


@pytest.mark.parametrize(
    "name",
    [
        "model.vision_model.embeddings.patch_embedding.weight",
        "model.vision_model.embeddings.position_embedding.weight",
        "model.vision_model.encoder.layers.1.self_attn.q_proj.weight",
        "model.vision_model.encoder.layers.0.mlp.fc2.weight", "model.vision_model.post_layernorm.weight",
        "model.connector.modality_projection.proj.weight",
    ],
)  # fmt: skip
def test_tensors_that_are_missing_or_have_another_shape(folder: Path, name: str) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    kept = tensors.pop(name)
    save_file(tensors, file)
    with pytest.raises(BadCheckpoint, match=name.removesuffix("weight")):
        spec_of(folder)
    save_file(tensors | {name: np.ones((*kept.shape, 2), np.float32)}, file)
    with pytest.raises(BadCheckpoint, match="shape"):
        spec_of(folder)
