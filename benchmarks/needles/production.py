"""The thirteenth set: how logs of production carry secrets and people's numbers, written before the patterns were read.

A form is a text or a JSON value; what is between « and » must be gone. `{pw}`, `{phrase}`, `{tok}`, `{user}` and
`{host}` are as in `made`, `{h40}` is forty characters of a class. Places are in `production_places`, numbers
of people in `production_people`; here are services' marks and encodings, often of two layers.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import re
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

from flywheel.stages.ingest.redaction.patterns.registers import is_given

from .made import ALNUM, DIGITS, HEX, LETTERS, Family, Made, chars, host, password, phrase, token, user
from .production_people import NUMBERS
from .production_places import PLACES

_CLASSES = {
    "d": DIGITS, "h": HEX, "H": HEX.upper(), "l": "abcdefghijklmnopqrstuvwxyz" + DIGITS, "U": LETTERS[26:] + DIGITS, "n": ALNUM,
    "w": ALNUM + "_-", "b": ALNUM + "+/", "A": LETTERS[26:], "a": LETTERS[:26], "f": "23456789ABCDEFGHJKLMNPQRSTUVWXYZ",
}  # fmt: skip
_PART = re.compile(r"\{([a-zA-Z])([0-9]+)\}")
_MARKED = re.compile("«(.*?)»", re.DOTALL)
_UUID = "{h8}-{h4}-4{h3}-a{h3}-{h12}"

_MARKS = {
    "github-classic": "ghp_{n36}", "github-app": "ghs_{n36}", "github-fine": "github_pat_{n22}_{n59}", "gitlab": "glpat-{w20}", "gitlab-routable": "glpat-{w27}.01.{l9}", "gitlab-runner": "glrt-{w20}",
    "gitlab-deploy": "gldt-{w20}", "gitlab-feed": "glft-{w20}", "slack-bot": "xoxb-{d12}-{d13}-{n24}", "slack-config": "xoxe.xoxp-1-{n140}", "stripe": "sk_live_51{n97}", "stripe-restricted": "rk_live_{n40}",
    "stripe-webhook": "whsec_{n32}", "twilio": "SK{h32}", "sendgrid": "SG.{w22}.{w43}", "npm": "npm_{n36}", "pypi": "pypi-AgEIcHlwaS5vcmc{w120}", "rubygems": "rubygems_{h48}", "docker": "dckr_pat_{w27}",
    "hf": "hf_{n34}", "openai": "sk-proj-{w70}T3BlbkFJ{w70}", "openai-admin": "sk-admin-{w58}T3BlbkFJ{w58}", "anthropic": "sk-ant-api03-{w93}AA", "google": "AIza{w35}", "google-secret": "GOCSPX-{w28}",
    "google-access": "ya29.a0{w180}", "aws": "AKIA{f16}", "aws-bedrock": "ABSK{b106}==", "digitalocean": "dop_v1_{h64}", "heroku": "HRKU-AA{w58}", "linear": "lin_api_{n40}", "notion": "ntn_{d11}{n35}",
    "airtable": "pat{n14}.{h64}", "figma": "figd_{w40}", "shopify": "shpat_{h32}", "square": "EAAA{w60}", "newrelic": "NRAK-{U27}", "grafana-cloud": "glc_eyJ{b90}", "sentry": "sntryu_{h64}", "pulumi": "pul-{h40}",
    "terraform": "{n14}.atlasv1.{w67}", "vault": "hvs.CAES{w90}", "planetscale": "pscale_tkn_{w43}", "supabase": "sbp_{h40}", "supabase-secret": "sb_secret_{w22}_{w8}", "netlify": "nfp_{n40}", "vercel": "vcp_{n56}", "fly": "fo1_{w43}",
    "render": "rnd_{n28}", "replicate": "r8_{n37}", "groq": "gsk_{n52}", "xai": "xai-{n80}", "cerebras": "csk-{l48}", "tavily": "tvly-dev-{n32}", "langsmith": "lsv2_pt_{h32}_{h10}", "posthog": "phx_{n43}",
    "telegram": "{d10}:AA{w33}", "discord": "MT{n24}.G{n5}.{w38}", "age": "AGE-SECRET-KEY-1{U58}", "tailscale": "tskey-auth-k{n10}CNTRL-{n32}", "buildkite": "bkua_{h40}", "circleci": "CCIPAT_{n22}_{h40}", "sonar": "squ_{h40}",
    "contentful": "CFPAT-{w43}", "hubspot": "pat-na1-" + _UUID, "typeform": "tfp_{w44}_3p{w10}", "plaid": "access-production-" + _UUID, "razorpay": "rzp_live_{n14}", "flutterwave": "FLWSECK-{h32}-X", "mollie": "live_{n30}",
    "entra": "{n3}8Q~{w34}", "nvidia": "nvapi-{w64}", "jina": "jina_{h32}{w28}", "pinecone": "pcsk_{n6}_{n63}", "prefect": "pnu_{n36}", "dbt": "dbtc_{w48}", "launchdarkly": "sdk-" + _UUID, "braintree": "access_token$production${l16}${h32}",
    "modal": "as-{n22}", "runpod": "rpa_{U40}{l6}", "browserbase": "bb_live_{w27}", "apify": "apify_api_{n36}", "inngest": "signkey-prod-{h64}", "trigger": "tr_prod_{n20}", "together": "tgp_v1_{w43}", "zapier": "sk-ak-{n24}",
    "helicone": "sk-helicone-{l7}-{l7}-{l7}-{l7}", "ngrok": "ak_{n27}", "onepassword": "ops_eyJ{n200}", "databento": "db-{n29}", "axiom": "xaat-" + _UUID, "cloudinary": "cloudinary://{d15}:{w27}@acme",
    "slack-hook": "https://hooks.slack.com/services/T{U10}/B{U10}/{n24}", "teams-hook": "https://acme.webhook.office.com/webhookb2/" + _UUID + "@" + _UUID + "/IncomingWebhook/{h32}/" + _UUID,
    "discord-hook": "https://discord.com/api/webhooks/{d19}/{w68}", "sas": "https://acme.blob.core.windows.net/c/f.csv?sv=2024-11-04&se=2026-12-01T00%3A00%3A00Z&sr=b&sp=r&sig={n43}%3D",
}  # fmt: skip
_BARE = ("{}", "it was {} until Monday", "using {}.", "<{}>", "rotate {} please", "['{}']", "401 for {}, retrying")


def _zero_width(text: str) -> str:
    return "\u200d".join(text)


def _b64(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(text.encode(encoding)).decode()


def _urlsafe(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _printable(text: str) -> str:
    coded = "".join(f"={byte:02X}" if byte in b"=_?" or byte > 126 else chr(byte) for byte in text.encode())
    return "=\n".join(coded[n : n + 20] for n in range(0, len(coded), 20))


def _dump(text: str) -> str:
    rows = [text.encode()[n : n + 16] for n in range(0, len(text.encode()), 16)]
    return "\n".join(
        f"{16 * n:08x}  {row.hex(' '):48} |{''.join(chr(b) if 31 < b < 127 else '.' for b in row)}|" for n, row in enumerate(rows)
    )  # fmt: skip


_LAYERS: dict[str, Callable[[str], str]] = {
    "b64": _b64, "b64-urlsafe": _urlsafe, "b64-twice": lambda t: _b64(_b64(t)), "b64-thrice": lambda t: _b64(_b64(_b64(t))), "hex-of-b64": lambda t: _b64(t).encode().hex(),
    "b64-of-hex": lambda t: _b64(t.encode().hex()), "percent": _percent, "percent-twice": lambda t: quote(quote_plus(t, safe=""), safe=""), "percent-of-b64": lambda t: quote(_b64(t), safe=""),
    "b64-of-percent": lambda t: _b64(quote_plus(t)), "entities": lambda t: "".join(f"&#{ord(c)};" for c in t), "entities-hex": lambda t: "".join(f"&#x{ord(c):X};" for c in t),
    "entities-twice": lambda t: html.escape("".join(f"&#{ord(c)};" for c in t)), "b64-of-entities": lambda t: _b64("".join(f"&#{ord(c)};" for c in t)), "escapes": lambda t: "".join(f"\\u{ord(c):04x}" for c in t),
    "escapes-twice": lambda t: "".join(f"\\\\u{ord(c):04x}" for c in t), "hex-escapes": lambda t: "".join(f"\\x{ord(c):02X}" for c in t), "full-width": lambda t: "".join(chr(ord(c) + 0xFEE0) if 32 < ord(c) < 127 else c for c in t),
    "zero-width": _zero_width, "bold": lambda t: "".join(chr(0x1D5D4 + ord(c) - 65) if "A" <= c <= "Z" else chr(0x1D5EE + ord(c) - 97) if "a" <= c <= "z" else c for c in t),
    "full-width-percent": lambda t: _percent("".join(chr(ord(c) + 0xFEE0) if 32 < ord(c) < 127 else c for c in t)), "quoted-printable": _printable, "mime-b": lambda t: f"=?UTF-8?B?{_b64(t)}?=",
    "mime-folded": lambda t: "\n ".join(f"=?UTF-8?B?{_b64(t[n : n + 9])}?=" for n in range(0, len(t), 9)), "utf16": lambda t: _b64(t, "utf-16-le"), "gzip": lambda t: base64.b64encode(gzip.compress(t.encode(), mtime=0)).decode(),
    "gzip-hex": lambda t: gzip.compress(t.encode(), mtime=0).hex(), "deflate-percent": lambda t: quote_plus(base64.b64encode(zlib.compress(t.encode())[2:-4]).decode()), "base32": lambda t: base64.b32encode(t.encode()).decode(),
    "hexdump": _dump, "xxd-plain": lambda t: "\n".join(t.encode().hex()[n : n + 60] for n in range(0, 2 * len(t), 60)), "decimal": lambda t: ",".join(str(c) for c in t.encode()),
    "char-code": lambda t: f"String.fromCharCode({', '.join(str(ord(c)) for c in t)})", "buffer": lambda t: f"<Buffer {t.encode().hex(' ')}>", "json-thrice": lambda t: json.dumps(json.dumps(json.dumps({"body": t}))),
    "json-in-b64": lambda t: _b64(json.dumps({"v": 1, "body": t})), "b64-in-json-in-b64": lambda t: _b64(json.dumps({"data": _b64(t)})), "data-uri": lambda t: f"data:text/plain;charset=utf-8;base64,{_b64(t)}",
    "wrapped-yaml": lambda t: "data: |\n" + "\n".join("    " + _b64(t)[n : n + 32] for n in range(0, len(_b64(t)), 32)), "wrapped-shell": lambda t: " \\\n".join(_b64(t)[n : n + 32] for n in range(0, len(_b64(t)), 32)),
    "escaped-slashes": lambda t: json.dumps({"b": _b64(t)}).replace("/", "\\/").replace("=", "\\u003d"), "jwt": lambda t: f"eyJhbGciOiJIUzI1NiJ9.{_urlsafe(json.dumps({'sub': 7, 'note': t}))}.{'Ab3' * 14}x",
}  # fmt: skip
_INSIDE = (
    "DB_PASSWORD=«{pw}»", 'user=app password="«{phrase}»"', '{"username":"{user}","password":"«{pw}»"}', "api_key: «{h40}»", "https://{user}:«{pw}»@{host}/x",
    "mail «{a6}.{a7}@{host}» about it", "Authorization: Bearer «{n40}»",
)  # fmt: skip
_OUTSIDE = ("{}", "body: {}", "got {} back", '"{}"', "payload={}", "decoded from {}\nok")


def filled(form: Any, rng: random.Random) -> Made:
    """Return a form with its parts filled in, and its needles."""
    if isinstance(form, dict | list):
        parts = [filled(item, rng) for item in (form.values() if isinstance(form, dict) else form)]
        values = [part.value for part in parts]
        needles = tuple(needle for part in parts for needle in part.needles)
        return Made(dict(zip(form, values, strict=True)) if isinstance(form, dict) else values, needles)
    if not isinstance(form, str):
        return Made(form, ())
    text = form
    for name, make in (("pw", password), ("phrase", phrase), ("tok", token), ("user", user), ("host", host)):
        while f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", make(rng), 1)
    text = _PART.sub(lambda m: chars(rng, _CLASSES[m[1]], int(m[2])), text)
    return Made(_MARKED.sub(r"\1", text), tuple(_MARKED.findall(text)))


def _family(name: str, group: str, form: Any) -> Family:
    return Family(f"production {name}", group, lambda rng: filled(form, rng))


def _mark(name: str, form: str) -> Family:
    def make(rng: random.Random) -> Made:
        key = filled(f"«{form}»", rng).needles[0]
        return Made(rng.choice(_BARE).replace("{}", key), (key.split("//")[-1].partition("?")[2] or key,))

    return Family(f"production mark {name}", "vendor", make)


def _layered(name: str) -> Family:
    def make(rng: random.Random) -> Made:
        inside = filled(rng.choice(_INSIDE), rng)
        coded = _LAYERS[name](inside.value)
        return Made(rng.choice(_OUTSIDE).replace("{}", coded), (*inside.needles, coded))

    return Family(f"production code {name}", "encoded", make)


def _is_luhn(number: str) -> bool:
    digits = [int(digit) for digit in number if digit.isdigit()][::-1]
    return sum(sum(divmod(digit * (1 + n % 2), 10)) for n, digit in enumerate(digits)) % 10 == 0


def _person(name: str) -> Family:
    shape, register, sentences = NUMBERS[name]

    def make(rng: random.Random) -> Made:
        number = filled(f"«{shape}»", rng).needles[0]
        for _ in range(100_000 * bool(register)):
            if _is_luhn(number) if register == "luhn" else is_given(register, number):
                break
            number = filled(f"«{shape}»", rng).needles[0]
        else:
            if register:
                raise ValueError(name)
        sentence = rng.choice(sentences)
        if isinstance(sentence, dict):
            return Made(dict.fromkeys(sentence, number), (number,))
        return Made(sentence.replace("{}", number), (number,))

    return Family(f"production person {name}", "personal", make)


THIRTEENTH = (
    *(_mark(name, form) for name, form in _MARKS.items()),
    *(_family(f"place {name}", "place", form) for name, form in PLACES.items()),
    *(_layered(name) for name in _LAYERS),
    *map(_person, NUMBERS),
)
