"""Reading and writing configuration files: TOML in, models out, and errors that name the line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from flywheel.config.root import Config, Pipeline
from flywheel.config.training import masked
from flywheel.errors import ConfigError
from flywheel.io.user_files import read_text

CONFIG_FILE = "flywheel.toml"

# Keys of earlier versions: the names that they have now, and the values that removed ones are fixed at.
_RENAMED = {"eval.rivals": "eval.baselines", "eval.rival_cases": "eval.baseline_cases"}
REMOVED: dict[str, Any] = {
    "train.grpo_shift": 0.1,
    "rewards.prior_strength": 10.0,
    "rewards.long_discount": 0.99,
    "canary.harm_alpha": 0.01,
    "canary.srm_p": 0.001,
    "monitors.style_margin": 0.1,
    "monitors.slope_drop_amber": 0.15,
    "monitors.slope_drop_red": 0.3,
    "monitors.praise_amber": 0.25,
    "monitors.praise_red": 0.4,
    "monitors.mix_amber": 0.1,
    "monitors.mix_red": 0.25,
    "monitors.rate_ratio": 1.5,
    "monitors.goodhart_rounds": 3,
    "monitors.goodhart_gain": 0.02,
    "monitors.goodhart_follow": 0.3,
    "monitors.user_share": 0.02,
    "monitors.user_ratio": 5.0,
    "monitors.credit_amber": 0.2,
}


def _line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the 1-based line of a dotted key, or 1."""
    section, leaf = ".".join(str(p) for p in path[:-1]), str(path[-1]) if path else ""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header:
            current = header[1].replace('"', "")
            if current == ".".join(str(p) for p in path):
                return number
        elif re.match(rf'\s*"?{re.escape(leaf)}"?\s*[=.]', line) and current in {section, ""}:
            return number
    return 1


def _known_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return list(model.model_fields)


def _explain(error: ValidationError, text: str, file: str, model: type[BaseModel]) -> ConfigError:
    errors = error.errors(include_input=False, include_url=False)
    unknown = (one for one in errors if one["type"] == "extra_forbidden")  # a key that is misspelt is missing too
    first = next(unknown, errors[0])
    context = first.get("ctx", {})
    path = first["loc"] or tuple(context.get("at", ()))
    dotted, line = ".".join(str(p) for p in path), _line_of(text, path)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _known_keys(model, path[:-1]), n=1)
        section = ".".join(part for part in path[:-1] if isinstance(part, str))
        where = f"keys of [{section}]" if section else "sections"
        hint = f"`flywheel schema config` lists the {where}"
        if dotted in _RENAMED:
            hint = f"it is `{_RENAMED[dotted]}` now"
        elif dotted in REMOVED:
            hint = f"remove it: it is always {REMOVED[dotted]}"
        elif near:
            hint = f"did you mean `{near[0]}`?"
        return ConfigError(f"`{file}` line {line}: unknown key `{dotted}`", hint=hint)
    hint = str(context.get("hint", "`flywheel schema config` shows what fits"))
    return ConfigError(f"`{file}` line {line}: `{dotted}`: {first['msg']}", hint=hint)


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"`{file}`: not valid TOML: {error}", hint="see https://toml.io") from error


def load_config(path: Path) -> Config:
    """Read flywheel.toml, or return the defaults when there is none.

    Raises:
        ConfigError: the file is not TOML, has an unknown key, or a value does not fit; names file and line.
    """
    if not path.exists():
        return Config()
    text = read_text(path, ConfigError)
    try:
        return Config.model_validate(_parse(text, path.name))
    except ValidationError as error:
        raise _explain(error, text, path.name, Config) from None


def load_pipeline(text: str, file: str) -> Pipeline:
    """Read a pipeline file's text and check that its overrides fit the configuration.

    Raises:
        ConfigError: the text is not TOML or does not fit.
    """
    try:
        pipeline = Pipeline.model_validate(_parse(text, file))
        merge_overrides(Config(), pipeline.overrides)
    except ValidationError as error:
        raise _explain(error, text, file, Pipeline) from None
    return pipeline


_BETWEEN_SECTIONS = {"lexicographic", "too_few_cases"}  # each value fits, but not with that of another section


def merge_overrides(config: Config, overrides: dict[str, Any]) -> Config:
    """Return the configuration with a nested dict of overrides laid over it."""

    def lay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        both = {
            k: lay(below[k], v) if isinstance(v, dict) and isinstance(below.get(k), dict) else v
            for k, v in above.items()
        }
        return {**below, **both}

    merged = lay(config.model_dump(), overrides)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        if any(detail["type"] not in _BETWEEN_SECTIONS for detail in error.errors()):
            raise
        raise _explain(error, "", "overrides", Config) from None


def origins(path: Path, config: Config) -> list[tuple[str, Any, str]]:
    """Return (dotted key, value, origin) of every value: 'default', or the file's name and line."""
    text = read_text(path, ConfigError) if path.exists() else ""
    written = _parse(text, path.name)
    return [
        (".".join(key), value, f"{path.name} line {_line_of(text, key)}" if _is_given(written, key) else "default")
        for key, value in _leaves(config, ())
    ]


def _leaves(section: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _is_given(written: Any, key: tuple[str, ...]) -> bool:
    for part in key:
        if not isinstance(written, dict) or part not in written:
            return False
        written = written[part]
    return True


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_value(key)} = {_toml_value(v)}" for key, v in value.items()) + "}"
    return repr(value)


def _render(section: BaseModel, path: str) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        dotted = f"{path}.{name}" if path else name
        if isinstance(value, BaseModel):
            tables += ["", f"# {(type(value).__doc__ or '').splitlines()[0]}", f"[{dotted}]", *_render(value, dotted)]
        elif isinstance(value, dict):
            plain = {k: v for k, v in value.items() if not isinstance(v, BaseModel)}
            plain = masked(plain) if dotted.startswith("train.") else plain
            entries = [f"{key} = {_toml_value(entry)}" for key, entry in plain.items()]
            tables += ["", f"# {field.description}", f"[{dotted}]", *entries]
            for key in sorted(value.keys() - plain.keys()):
                tables += ["", f"[{dotted}.{key}]", *_render(value[key], f"{dotted}.{key}")]
        else:
            lines += [f"# {field.description}", f"{name} = {_toml_value(value)}"]
    return lines + tables


def render_default_config(config: Config | None = None) -> str:
    """Return a commented flywheel.toml with every value written down."""
    head = ["#:schema ./.flywheel/schemas/config/v1.json", "# flywheel.toml: every value here is the default.", ""]
    return "\n".join(head + _render(config or Config(), "")) + "\n"
