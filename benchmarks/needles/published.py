"""The eleventh set, from what others keep: another scanner's rules, a library of registers, formats of configurations.

Services' keys: forty rules that have a mark and forty that have a service's name, sampled by a seed from kingfisher (rules
of 2025-06-20; not used for `services.toml`), as shapes. Numbers of people: twenty registers of python-stdnum, sampled by a
seed, with numbers that pass their check; at the first look their names were not in `registers.toml`. Places and
encodings are our own, of kinds that no earlier set has.
"""

from __future__ import annotations

import base64
import gzip
import json
import quopri
import random
import re
from collections.abc import Callable
from urllib.parse import quote

from flywheel.stages.ingest.redaction.patterns.registers import is_given

from .made import ALNUM, DIGITS, HEX, Family, Made, chars, packed, template

_CLASSES = {
    "d": DIGITS, "h": HEX, "l": "abcdefghijklmnopqrstuvwxyz0123456789", "U": "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "n": ALNUM, "w": ALNUM + "_-",
}  # fmt: skip
_PART = re.compile(r"\{([a-zA-Z])([0-9]+)\}")
_UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
_MARKED = {
    "adafruit": "aio_{n28}", "adobe": "p8e-{w32}", "age": "AGE-SECRET-KEY-1{U58}", "aws": "AKIA{U16}", "buildkite": "bkua_{l40}",
    "circleci": "CCIPAT_{n22}_{l40}", "digitalocean": "dor_v1_{h64}", "dockerhub": "dckr_pat_{w27}", "documo": "eyJ{n34}.eyJ{n154}.{w43}",
    "doppler": "dp.pt.{n40}", "doppler-scim": "dp.scim.{n40}", "dtrack": "odt_{n32}", "elevenlabs": "sk_{h48}", "google": "ya29.{w20}",
    "groq": "gsk_{n52}", "hubspot": "pat-eu1-{n8}-{n4}-{n4}-{n4}-{n12}", "iexapis": "sk_{l32}", "ionic": "ion_{l42}", "linear": "lin_api_{l40}",
    "mailgun": "key-{l32}", "mongodb": "mdb_sa_sk_{w6}{n34}", "notion": "secret_{n43}", "paystack": "sk_{l1}_{n40}", "posthog": "phx_{w43}",
    "rubygems": "rubygems_{l42}", "salesblink": "key-{n64}", "segment": "sgp_{n64}", "sendgrid": "SG.{w20}.{w39}", "sendinblue": "xkeysib-{h64}-{l16}",
    "slack": "xoxe-{d1}-{U140}", "sourcegraph": "sgp_{h16}_{h40}", "square": "sq0atp-{w22}", "square-secret": "sq0csp-{w43}", "squareup": "sq0idp-{n22}",
    "stackhawk": "hawk.{w20}.{w20}", "stripo": "eyJhbGciOiJIUzI1NiJ9.{n130}.{w43}", "typeform": "tfp_{w40}", "ubidots": "BBFF-{n30}",
    "voicegain": "eyJ{w34}.eyJ{w108}.{w43}", "zoho": "1000.{h32}.{h32}",
}  # fmt: skip
_BY_NAME = {
    "apifonica": "{l11}-{l4}-{l4}-{l4}-{l12}", "apitemplate": "{n39}", "auth0": "{w64}", "bitbar": "{l32}", "blitapp": "{w39}", "box": "{l32}",
    "bugsnag": "{l8}-{l4}-{l4}-{l4}-{l12}", "chatfuel": "{n128}", "clarifai": "{n32}", "cloudflare": "{w38}", "coinlib": "{l16}",
    "countrylayer": "{l32}", "droneci": "{n32}", "dyspatch": "{U52}", "exchangerateapi": "{l24}", "flightapi": "{l24}", "geocode": "{l28}",
    "gtmetrix": "{h32}", "hiveage": "{w20}", "jumpcloud": "{n40}", "lemlist": "{h32}", "loyverse": "{l32}", "mailboxlayer": "{l32}",
    "mapquest": "{n32}", "miro": "{n27}", "moonclerk": "{l32}", "nasdaqdatalink": "{w20}", "nimble": "{n30}", "onesignal": _UUID,
    "oopspam": "{n40}", "positionstack": "{w32}", "proxycrawl": "{w22}", "qubole": "{l64}", "replyio": "{n24}", "sentry": "{h64}",
    "serphouse": "{n60}", "todoist": "{l40}", "toggltrack": "{n32}", "transferwise": _UUID, "zonkafeedback": "{n36}",
}  # fmt: skip
_BARE = ("{}", "it was {} before", "key={}", "[{}]", "sent '{}' again", '{"v": "{}"}')
_CALLED = (
    "{V}_API_KEY={}",
    "{v} token: {}",
    '"{v}ApiKey": "{}"',
    "{v} access key {}",
    "# {v} private key: {}",
    "--{v}-token {}",
)

# Registers by module: a number of theirs as the library's own examples have it, and the names in its title.
_REGISTERS = {
    "ad.nrt": ("U-132950-X", "NRT"), "ar.cuit": ("20-05536168-2", "CUIT"), "az.voen": ("1401555071", "VÖEN"), "cn.ric": ("360426199101010071", "RIC No."),
    "cr.cpf": ("03-0455-0175", "Cédula de Persona Física"), "cz.rc": ("710319/2745", "Rodné číslo"), "es.nie": ("X2482300W", "NIE"),
    "gb.upn": ("B801200005001", "UPN"), "fr.nif": ("30 23 217 600 053", "Numéro d'Immatriculation Fiscale"), "gt.nit": ("576937-K", "NIT"),
    "in_.epic": ("WKH1186253", "Electoral Photo Identity Card"), "in_.vid": ("2341 2341 2341 2341", "VID"), "is_.kennitala": ("450401-3150", "Kennitala"),
    "lv.pvn": ("161175-19997", "personas kods"), "nl.onderwijsnummer": ("101222331", "Onderwijsnummer"), "pl.pesel": ("44051401359", "PESEL"),
    "tr.tckimlik": ("17291716060", "T.C. Kimlik No."), "tr.vkn": ("4540536920", "VKN"), "za.tin": ("0001339050", "Tax Identification Number"),
    "fo.vn": ("623857", "V-number"),
}  # fmt: skip
_SAID = ("{name} {}", "{name}: {}", "my {name} is {}", "Customer {name} {}, please check", '{"{name}": "{}"}', "{}")

_LINES = {
    "my-cnf": "[client]\nuser = app\npassword = {pw}\nhost = db", "gradle": "signing.keyId=24875D73\nsigning.password={pw}\n",
    "composer": '{"http-basic": {"repo.example.com": {"username": "app", "password": "{pw}"}}}', "pip-conf": "[global]\nindex-url = https://app:{pw}@pypi.example.com/simple",
    "cargo": '[registries.corp]\ntoken = "{tok}"', "kubeconfig": "users:\n- name: ci\n  user:\n    token: {tok}", "maven": "<server><id>corp</id><username>app</username><password>{pw}</password></server>",
    "wp-config": "define( 'DB_PASSWORD', '{pw}' );", "rclone": "[box]\ntype = webdav\nuser = app\npass = {pw}", "become": "web1 ansible_become_password='{pw}'",
    "jenkins": "withCredentials([string(credentialsId: 'x', variable: 'T')]) // T={tok}", "french": "Le mot de passe du serveur : {pw}", "spanish": "la contraseña nueva es {pw}",
    "czech": "heslo je {pw}", "turkish": "şifre: {pw}", "sftp-batch": "echo 'open sftp://app:{pw}@files.example.com' | lftp", "git-config": "[credential]\n  password = {pw}",
    "properties": "spring.mail.username=app\nspring.mail.password={pw}", "rabbit": "rabbitmqctl add_user app {pw}", "vault-cli": "vault kv put secret/db password={pw}",
}  # fmt: skip
_CODES: dict[str, Callable[[str], str]] = {
    "mime-word": lambda t: f"=?utf-8?B?{base64.b64encode(t.encode()).decode()}?=",
    "quoted-printable": lambda t: quopri.encodestring(t.replace("=", ":=").encode(), quotetabs=True).decode(),
    "percent-twice": lambda t: quote(quote(t, safe=""), safe=""),
    "gzip-base64": lambda t: base64.b64encode(gzip.compress(t.encode(), mtime=0)).decode(),
    "base64-twice": lambda t: base64.b64encode(base64.b64encode(t.encode())).decode(),
    "from-char-code": lambda t: f"String.fromCharCode({','.join(str(ord(c)) for c in t)})",
    "hex-escapes": lambda t: "".join(f"\\x{ord(c):02X}" for c in t),
    "css-escapes": lambda t: "".join(c if c.isalnum() else f"\\{ord(c):06x}" for c in t),
    "powershell": lambda t: "powershell -enc " + base64.b64encode(t.encode("utf-16-le")).decode(),
    "long-escapes": lambda t: "".join(f"\\U{ord(c):08x}" for c in t),
    "json-in-base64": lambda t: base64.urlsafe_b64encode(json.dumps({"n": 1, "conf": json.dumps({"env": t})}).encode()).decode(),
    "data-url": lambda t: f"data:text/plain;base64,{base64.b64encode(t.encode()).decode()}",
}  # fmt: skip


def _filled(form: str, rng: random.Random) -> str:
    text = _PART.sub(lambda m: chars(rng, _CLASSES[m[1]], int(m[2])), form)
    return text if any(c.isdigit() for c in text) else _filled(form, rng)


def _service(name: str, form: str, texts: tuple[str, ...]) -> Family:
    def make(rng: random.Random) -> Made:
        key = _filled(form, rng)
        return Made(rng.choice(texts).replace("{V}", name.upper()).replace("{v}", name).replace("{}", key), (key,))

    return Family(f"published {name}", "vendor", make)


def _register(module: str) -> Family:
    example, name = _REGISTERS[module]
    swap = {True: DIGITS, False: "ABCDEFGHJKLMNPRSTUVWXYZ"}

    def make(rng: random.Random) -> Made:
        number = example
        for _ in range(20_000):  # until one passes the register's check; the example itself otherwise
            made = "".join(rng.choice(swap[c.isdigit()]) if c.isalnum() and rng.random() < 0.7 else c for c in example)
            if made != example and is_given(module, made):
                number = made
                break
        return Made(rng.choice(_SAID).replace("{name}", name).replace("{}", number), (number,))

    return Family(f"register {module}", "personal", make)


ELEVENTH = (
    *(_service(name, form, _BARE) for name, form in _MARKED.items()),
    *(_service(name, form, _CALLED) for name, form in _BY_NAME.items()),
    *map(_register, _REGISTERS),
    *(template("file " + name, "place", text) for name, text in _LINES.items()),
    *(packed(name, code) for name, code in _CODES.items()),
)
