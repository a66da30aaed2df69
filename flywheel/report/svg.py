"""From a matplotlib figure to an inline SVG that follows the page's theme and obeys its content security policy.

The policy forbids `style` attributes and elements, so they become presentation attributes; the palette's colours get
classes that style.css gives a light and a dark value; ids get the plot's name before them, so that several plots live
in one page; texts that come from data are put in here, after the drawing, so that no label meets a font or a parser.
The same figure gives the same bytes: salted ids, no date, no creator.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flywheel.report.text import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Mid-tones: readable on white and on black even where the page's classes do not apply.
INK, LINE, SOFT, PAPER = "#73787e", "#a4a9af", "#b9bdc2", "#fdfdfc"
ACCENT, SECOND, GOOD, BAD = "#3f83d4", "#cf7a22", "#2f9c68", "#d2524a"
THIRD, FOURTH = "#168f96", "#8b63c9"
_CLASSES = {
    INK: "ink",
    LINE: "line",
    SOFT: "soft",
    PAPER: "paper",
    ACCENT: "accent",
    SECOND: "second",
    GOOD: "good",
    BAD: "bad",
    THIRD: "third",
    FOURTH: "fourth",
}

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_SETTINGS: dict[Any, object] = {
    "svg.hashsalt": "flywheel",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with these settings alone, independent of the user's matplotlibrc."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def to_svg(figure: Figure, *, name: str, title: str, labels: Mapping[str, str] | None = None) -> str:
    """Return the figure as an `<svg>` element; to be called inside `drawing()`.

    Args:
        figure: in the colours of this module.
        name: short name of the plot, unique in the page.
        title: text for screen readers.
        labels: placeholder text → text from data.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - the text was written by matplotlib a line ago
    _strip(root)
    for element in root.iter():
        _attributes(element)
        if element.tag == f"{_SVG}text" and element.text:
            element.text = clean((labels or {}).get(element.text, element.text))
    _rename_ids(root, name)
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib.update({"width": width, "height": height, "class": "plot", "role": "img", "aria-label": clean(title)})
    root.attrib.update({"stroke-linejoin": "round", "font-family": "system-ui, sans-serif"})
    ET.register_namespace("", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode")


def _strip(root: ET.Element) -> None:
    """Take out what a browser must not or need not see."""
    for parent in list(root.iter()):
        parent.text, parent.tail = (parent.text or "").strip() or None, None
        for child in list(parent):
            if child.tag in {f"{_SVG}metadata", f"{_SVG}style"}:
                parent.remove(child)


def _attributes(element: ET.Element) -> None:
    attributes = dict(element.attrib)
    for part in attributes.pop("style", "").split("; "):
        key, _, value = part.partition(": ")
        if value and key != "font-family":
            attributes[key] = value.strip()
    if f"{_XLINK}href" in attributes:
        attributes["href"] = attributes.pop(f"{_XLINK}href")
    if "d" in attributes:
        attributes["d"] = " ".join(attributes["d"].split())
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    classes = [f"{key[0]}-{_CLASSES[attributes[key]]}" for key in ("fill", "stroke") if attributes.get(key) in _CLASSES]
    if classes:
        attributes["class"] = " ".join(classes)
    element.attrib.clear()
    element.attrib.update({key: attributes[key] for key in sorted(attributes)})


def _rename_ids(root: ET.Element, name: str) -> None:
    """Keep only the ids that something refers to, with the plot's name before them."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {m for value in values for m in _REFERENCE.findall(value)} | {v[1:] for v in values if v.startswith("#m")}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id" and value not in used:
                del element.attrib[key]
            elif key == "id":
                element.attrib[key] = f"{name}-{value}"
            elif key == "href":
                element.attrib[key] = f"#{name}-{value[1:]}"
            elif "url(#" in value:
                element.attrib[key] = _REFERENCE.sub(rf"url(#{name}-\1)", value)
