"""The seventh and eighth sets, written before the patterns for them: the seventh to mend by, the eighth only to measure.

Dealt by the hash of a family's name, and so is what is around it: a line of the eighth set is in prose, a logger's
prefix or a level of escapes that no line of the seventh is in.
"""

from __future__ import annotations

import base64
import gzip
import json
import quopri
import random
import re
import string
import uuid
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from .around import AROUND
from .made import ALNUM, DIGITS, HEX, Family, Made, chars, password, structure, template, token, user
from .nations import NATIONS
from .services import BESIDE, SERVICES
from .statements import STATEMENTS

_PART = re.compile(r"\{([a-zA-Z])(\d+)\}")
_CLASSES = {
    "h": HEX,
    "n": ALNUM,
    "d": DIGITS,
    "U": string.ascii_uppercase + DIGITS,
    "l": string.ascii_lowercase + DIGITS,
    "w": ALNUM + "_-",
}


def _even(name: str) -> bool:
    return not zlib.crc32(name.encode()) % 2


_AROUND = {even: [name for name in AROUND if _even("around " + name) is even] for even in (False, True)}


def _surrounded(family: Family) -> Family:
    """Return a family with something around each text of it, of the half that its set has."""

    def make(rng: random.Random) -> Made:
        made = family.make(rng)
        name = rng.choice(_AROUND[_even(family.name)])
        return Made(AROUND[name](made.value), made.needles) if rng.randrange(6) else made

    return Family(family.name, family.group, make)


def service(name: str, form: str) -> Family:
    """Return the family of a service's keys in their published form."""

    def make(rng: random.Random) -> Made:
        text = _PART.sub(lambda m: chars(rng, _CLASSES[m[1]], int(m[2])), form)
        while "{uuid}" in text:
            text = text.replace("{uuid}", str(uuid.UUID(int=rng.getrandbits(128), version=4)), 1)
        needles = tuple(part for part in re.split(r"\s+|\\n", text) if len(part) > 40) if " " in text else (text,)
        return Made(rng.choice(BESIDE).replace("{}", text), needles)

    return Family("service " + name, "vendor", make)


def _hex_dump(data: bytes) -> str:
    rows = [data[n : n + 16] for n in range(0, len(data), 16)]
    return "\n".join(f"{n * 16:08x}  {row.hex(' '):<47}  |{'.' * len(row)}|" for n, row in enumerate(rows))


_BOLD = {ord(c): 0x1D5D4 + n for n, c in enumerate(string.ascii_uppercase)} | {
    ord(c): 0x1D5EE + n for n, c in enumerate(string.ascii_lowercase)
} | {ord(c): 0x1D7EC + n for n, c in enumerate(DIGITS)}  # fmt: skip

_CODES: dict[str, Callable[[str], str]] = {
    "base64": lambda t: base64.b64encode(t.encode()).decode(),
    "base64-lines": lambda t: "\n".join(re.findall(".{1,24}", base64.b64encode(t.encode()).decode())),
    "base64url": lambda t: base64.urlsafe_b64encode(t.encode()).decode().rstrip("="),
    "base64-percent": lambda t: quote(base64.b64encode(t.encode()).decode(), safe=""),
    "base64-escaped": lambda t: base64.b64encode(t.encode()).decode().replace("/", "\\/") + "\\n",
    "base32": lambda t: base64.b32encode(t.encode()).decode(),
    "gzip": lambda t: base64.b64encode(gzip.compress(t.encode(), mtime=0)).decode(),
    "zlib": lambda t: base64.b64encode(zlib.compress(t.encode())).decode(),
    "hex": lambda t: t.encode().hex(),
    "hex-upper": lambda t: t.encode().hex().upper(),
    "hex-spaces": lambda t: t.encode().hex(" "),
    "hex-colons": lambda t: t.encode().hex(":"),
    "hex-prefix": lambda t: "0x" + t.encode().hex(),
    "hex-array": lambda t: ", ".join(f"0x{byte:02x}" for byte in t.encode()),
    "hex-dump": lambda t: _hex_dump(t.encode()),
    "decimal-array": lambda t: "[" + ", ".join(str(byte) for byte in t.encode()) + "]",
    "percent": lambda t: quote(t, safe=""),
    "percent-all": lambda t: "".join(f"%{byte:02X}" for byte in t.encode()),
    "percent-twice": lambda t: quote(quote(t, safe=""), safe=""),
    "plus": lambda t: quote(t, safe="").replace("%20", "+"),
    "entities-hex": lambda t: "".join(f"&#x{ord(c):x};" for c in t),
    "entities-padded": lambda t: "".join(f"&#{ord(c):07d};" for c in t),
    "named": lambda t: t.replace("=", "&equals;").replace(":", "&colon;").replace("@", "&commat;").replace(".", "&period;"),
    "quoted-printable": lambda t: "".join(f"={byte:02X}" for byte in t.encode()),
    "quoted-soft": lambda t: quopri.encodestring((t + " " + "x" * 80).encode()).decode(),
    "unicode": lambda t: "".join(f"\\u{ord(c):04X}" for c in t),
    "unicode-braces": lambda t: "".join(f"\\u{{{ord(c):x}}}" for c in t),
    "unicode-twice": lambda t: "".join(f"\\\\u{ord(c):04x}" for c in t),
    "octal": lambda t: "".join(f"\\{ord(c):03o}" for c in t),
    "bytes-upper": lambda t: "".join(f"\\x{byte:02X}" for byte in t.encode()),
    "bold": lambda t: t.translate(_BOLD),
    "wide": lambda t: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in t),
    "joiners": "\u200d".join,
    "soft-hyphens": "\u00ad".join,
    "direction": lambda t: "\u2066" + "\u2060".join(t) + "\u2069",
    "base64-twice": lambda t: base64.b64encode(base64.b64encode(t.encode())).decode(),
    "hex-in-base64": lambda t: base64.b64encode(t.encode().hex().encode()).decode(),
    "percent-in-base64": lambda t: base64.b64encode(quote(t, safe="").encode()).decode(),
    "base64-in-json": lambda t: base64.b64encode(json.dumps({"data": base64.b64encode(t.encode()).decode()}).encode()).decode(),
    "utf16-hex": lambda t: t.encode("utf-16-le").hex(),
    "utf16-big": lambda t: base64.b64encode(t.encode("utf-16-be")).decode(),
    "data-url": lambda t: "data:text/plain;base64," + base64.b64encode(t.encode()).decode(),
    "mime-word": lambda t: "=?UTF-8?B?" + base64.b64encode(t.encode()).decode() + "?=",
    "jwt-body": lambda t: "x." + base64.urlsafe_b64encode(json.dumps({"note": t}).encode()).decode().rstrip("=") + ".y",
    "ssh-here": lambda t: "echo " + base64.b64encode((t + "\n").encode()).decode() + " | base64 -d > .env",
}  # fmt: skip
_PLAIN = (
    "password={pw}", "DB_PASSWORD={pw}\nDB_HOST=db1\n", '{"user": "app", "password": "{pw}"}', "{user}:{tok}@db.example.com",
    "login: {user}\npassword: {pw}\n", "Authorization: Bearer {tok}", "export API_TOKEN={tok}",
)  # fmt: skip
_OUTSIDE = ("{}", "payload: {}", "data={}", "got {} back", '"{}"', "body: {}\nend")


def _coded(name: str) -> Family:
    def make(rng: random.Random) -> Made:
        needle = rng.choice((password, token))(rng)
        plain = rng.choice(_PLAIN).replace("{user}", user(rng)).replace("{pw}", needle).replace("{tok}", needle)
        coded = _CODES[name](plain)
        value = rng.choice(_OUTSIDE).replace("{}", coded)
        return Made(value, (needle, coded, _CODES[name](needle)))

    return Family("code " + name, "encoded", make)


_STRUCTURES: dict[str, Callable[[str], Any]] = {
    "argv-long": lambda v: ["mysqladmin", "--user=root", "password", v],
    "argv-pair": lambda v: {"argv": ["curl", "--user", f"app:{v}", "https://x.example"]},
    "argv-token": lambda v: {"command": ["gh", "auth", "login", "--token", v]},
    "argv-shell": lambda v: {"command": ["bash", "-lc", f"PGPASSWORD={v} psql -h db -c 'select 1'"]},
    "argv-passphrase": lambda v: ["gpg", "--batch", "--passphrase", v, "-d", "a.gpg"],
    "env-list": lambda v: {"env": [{"key": "SMTP_PASSWORD", "value": v, "secure": True}]},
    "env-strings": lambda v: {"environment": ["TZ=UTC", f"GRAFANA_ADMIN_PASSWORD={v}"]},
    "setting": lambda v: {"setting": "smtp.password", "old": None, "new": v},
    "patch": lambda v: [{"op": "replace", "path": "/data/password", "value": v}],
    "graphql": lambda v: {"query": "mutation($p: String!) { login(password: $p) { id } }", "variables": {"p": v}},
    "form": lambda v: {"form": {"email": "x", "passwd": v, "remember": True}},
    "fields": lambda v: {"fields": [{"type": "password", "id": "f2", "value": v}]},
    "selenium": lambda v: {"tool": "send_keys", "by": "name", "locator": "password", "keys": v},
    "browser-fill": lambda v: {"selector": "#login-password", "value": v},
    "playwright": lambda v: {"element": "Passwort-Feld", "ref": "s1e7", "text": v, "submit": True},
    "keyboard": lambda v: {"steps": [{"click": "Password"}, {"type": v}]},
    "header-list": lambda v: {"headers": [["Authorization", f"Bearer {v}"], ["Accept", "*/*"]]},
    "header-strings": lambda v: {"headers": [f"X-Api-Key: {v}", "Accept: */*"]},
    "cookies": lambda v: {"cookies": [{"name": "sessionid", "value": v, "domain": "x.example"}]},
    "secret-manager": lambda v: {"Name": "prod/db", "SecretString": json.dumps({"username": "app", "password": v})},
    "secret-string": lambda v: {"ARN": "arn:aws:x", "SecretString": v},
    "ssm": lambda v: {"Parameter": {"Name": "/prod/db/password", "Type": "SecureString", "Value": v}},
    "k8s-secret": lambda v: {"kind": "Secret", "stringData": {"admin-pw": v}},
    "vault-read": lambda v: {"data": {"data": {"value": v}, "metadata": {"version": 3}}, "path": "secret/db_password"},
    "table-rows": lambda v: {"header": ["id", "user", "secret_key"], "data": [[7, "app", v], [8, "b", None]]},
    "cells": lambda v: [["Name", "API Key"], ["maps", v]],
    "keyed-rows": lambda v: {"result": [{"login": "app", "pass_plain": v}]},
    "assistant-says": lambda v: {"role": "assistant", "content": f"I have set the password to `{v}`."},
    "diff": lambda v: {"before": {"api_token": None}, "after": {"api_token": v}},
    "file": lambda v: {"path": ".env", "content": f"DEBUG=1\nSECRET_KEY={v}\nPORT=80\n"},
    "edit": lambda v: {"old_str": "password: x", "new_str": f"password: {v}"},
    "notebook": lambda v: {"cells": [{"cell_type": "code", "source": ["import os\n", f"api_key = '{v}'\n"]}]},
    "stdin-lines": lambda v: {"cmd": "docker login", "stdin": f"app\n{v}\n"},
    "dialog": lambda v: [{"q": "Username?", "a": "app"}, {"q": "Password?", "a": v}],
    "otp-seed": lambda v: {"totp": {"issuer": "x", "secret": v}},
    "french": lambda v: {"utilisateur": "anna", "motDePasse": v},
    "german": lambda v: {"benutzername": "anna", "passwort_neu": v},
    "portuguese": lambda v: {"usuario": "ana", "senha": v},
    "auth-tuple": lambda v: {"auth": ["app", v], "url": "https://x.example"},
    "basic-auth": lambda v: {"basic_auth": {"username": "app", "value": v}},
    "credential-id": lambda v: {"accessKey": "x", "secret": v},
    "wifi": lambda v: {"SSID": "HomeNet", "passphrase": v},
    "escaped-body": lambda v: {"request": {"body": json.dumps(json.dumps({"new_password": v}))}},
    "query-object": lambda v: {"url": "https://x.example", "params": {"apikey": v, "q": "x"}},
    "log-line": lambda v: {"lines": ["10:14 start", f"10:15 login ok user=app password={v}", "10:16 end"]},
}


def _pool() -> list[Family]:
    return [
        *(_surrounded(template("statement " + name, "place", text)) for name, text in STATEMENTS.items()),
        *(structure("value " + name, "place", make, password) for name, make in _STRUCTURES.items()),
        *(service(name, form) for name, form in SERVICES.items()),
        *(_coded(name) for name in _CODES),
        *NATIONS,
    ]


SEVENTH = tuple(family for family in _pool() if not _even(family.name))
EIGHTH = tuple(family for family in _pool() if _even(family.name))
