"""The fifth and sixth sets, dealt by the hash of a family's name: the sixth was looked at when the eighth was there."""

from __future__ import annotations

import base64
import json
import random
import zlib
from urllib.parse import quote

from .clients import CLIENTS
from .made import ALNUM, DIGITS, Family, Made, chars, password, structure, token, user
from .real import placed
from .shells import SHELLS


def _structures() -> tuple[Family, ...]:
    made = {
        "ecs": lambda v: {"containerDefinitions": [{"environment": [{"name": "DB_PASSWORD", "value": v}]}]},
        "inspect-env": lambda v: {"Config": {"Env": ["PATH=/bin", f"MYSQL_PASSWORD={v}"]}},
        "cf-parameter": lambda v: [{"ParameterKey": "MasterUserPassword", "ParameterValue": v}],
        "argv": lambda v: ["pg_dump", "--username", "app", "--password", v, "shop"],
        "argv-equals": lambda v: {"args": ["serve", f"--admin-password={v}", "--port=80"]},
        "argv-short": lambda v: {"cmd": ["mysql", "-uroot", f"-p{v}", "shop"]},
        "argv-url": lambda v: ["mongodump", "--uri", f"mongodb://app:{quote(v, safe='')}@db/x"],
        "env-map": lambda v: {"env": {"PGUSER": "app", "PGPASSWORD": v}},
        "camel": lambda v: {"user": "app", "dbPassword": v, "retries": 3},
        "upper": lambda v: {"USERNAME": "app", "PASSWD": v},
        "hyphen": lambda v: {"admin-password": v, "admin-user": "app"},
        "german": lambda v: {"benutzer": "anna", "kennwort": v},
        "french": lambda v: {"identifiant": "anna", "mot_de_passe": v},
        "spanish": lambda v: {"usuario": "anna", "contraseña": v},
        "passphrase": lambda v: {"keyfile": "/k.pem", "keyPassphrase": v},
        "confirm": lambda v: {"new_password": v, "confirm_password": v},
        "type-into": lambda v: {"action": "type", "element": "Password input", "ref": "e3", "text": v},
        "type-selector": lambda v: {"action": "fill", "selector": "input[name='pass']", "value": v},
        "type-xpath": lambda v: {"xpath": "//input[@type='password']", "keys": v},
        "browser-use": lambda v: {"input_text": {"index": 4, "text": v, "label": "Password"}},
        "cdp-attrs": lambda v: {"attributes": ["type", "password", "value", v]},
        "har-headers": lambda v: {"headers": [{"name": "X-Auth-Token", "value": v}, {"name": "Accept", "value": "*/*"}]},
        "query-list": lambda v: {"queryString": [{"name": "access_token", "value": v}]},
        "storage": lambda v: {"localStorage": [{"name": "refresh_token", "value": v}]},
        "sts": lambda v: {"Credentials": {"AccessKeyId": "ASIAX", "SecretAccessKey": v, "Expiration": "2026"}},
        "oauth": lambda v: {"token_type": "bearer", "expires_in": 3600, "refresh_token": v},
        "id-secret": lambda v: {"client_id": "web-app", "client_secret": v},
        "api-key-object": lambda v: {"apiKey": {"id": 7, "name": "ci", "key": v}},
        "headers-map": lambda v: {"headers": {"Authorization": f"Token {v}", "Accept": "*/*"}},
        "webhook": lambda v: {"webhook": {"url": "https://x.example", "signing_secret": v}},
        "columns": lambda v: {"columns": ["login", "password"], "rows": [["app", v]]},
        "tuples": lambda v: [["username", "app"], ["password", v]],
        "label-value": lambda v: {"fields": [{"label": "Password", "value": v}, {"label": "User", "value": "app"}]},
        "onepassword": lambda v: {"id": "password", "type": "CONCEALED", "purpose": "PASSWORD", "value": v},
        "bitwarden": lambda v: {"login": {"username": "app", "password": v, "totp": None}},
        "question": lambda v: {"question": "What is the database password?", "answer": v},
        "prompt-input": lambda v: {"prompt": "Enter password:", "input": v},
        "expect-dict": lambda v: {"expect": "Password:", "send": v},
        "stdin": lambda v: {"cmd": "sudo -S ls", "stdin": v + "\n"},
        "mail": lambda v: {"subject": "Your account", "body": f"User: app\nPassword: {v}\nRegards"},
        "nested-json": lambda v: {"event": json.dumps({"config": {"smtp": {"pass": v}}})},
        "xml-in-json": lambda v: {"xml": f"<login><pwd>{v}</pwd></login>"},
        "terraform-state": lambda v: {"attributes": {"master_password": v, "port": 5432}},
        "sensitive-list": lambda v: {"credentials": [{"username": "app", "password": v}]},
        "auth-array": lambda v: {"method": "login", "params": ["app", v]},
        "sql-params": lambda v: {"sql": "UPDATE users SET password = ? WHERE id = ?", "params": [v, 7]},
        "sql-named": lambda v: {"sql": "SELECT 1 FROM u WHERE pw = :pw", "bind": {"pw": v}},
        "psk": lambda v: {"ssid": "HomeNet", "psk": v},
        "wifi-key": lambda v: {"wifi": {"name": "HomeNet", "key": v}},
        "security-answer": lambda v: {"security_question": "first pet", "security_answer": v},
    }  # fmt: skip
    return tuple(structure(name, "place", make, password) for name, make in made.items())


def _code(name: str, digits: int, *texts: str) -> Family:
    """Return the family of sentences that say a code of digits."""

    def make(rng: random.Random) -> Made:
        code = chars(rng, DIGITS, digits)
        return Made(rng.choice(texts).replace("{}", code), (code,))

    return Family("code-" + name, "place", make)


def _wrapped(name: str, text: str, inner: str, code: str) -> Family:
    """Return the family of an encoded text in another."""

    def make(rng: random.Random) -> Made:
        needle = password(rng)
        plain = inner.replace("{user}", user(rng)).replace("{pw}", needle)
        coded = {
            "base64": base64.b64encode(plain.encode()).decode(),
            "url64": base64.urlsafe_b64encode(plain.encode()).decode().rstrip("="),
            "utf16": base64.b64encode(plain.encode("utf-16-le")).decode(),
            "hex": plain.encode().hex(),
            "percent": quote(plain, safe=""),
            "all": "".join(f"%{byte:02x}" for byte in plain.encode()),
            "entities": "".join(f"&#{ord(c)};" for c in plain),
            "escapes": "".join(f"\\u{ord(c):04x}" for c in plain),
            "bytes": "".join(f"\\x{byte:02x}" for byte in plain.encode()),
            "wide": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in plain),
            "zero": "\u200b".join(plain),
            "twice": base64.b64encode(base64.b64encode(plain.encode())).decode(),
        }[code]
        return Made(text.replace("{}", coded), (needle, coded))

    return Family("coded-" + name, "encoded", make)


_ENCODED = (
    _wrapped("k8s", "apiVersion: v1\nkind: Secret\ndata:\n  DB_PASS: {}\n", "{pw}", "base64"),
    _wrapped("k8s-json", '{"kind":"Secret","data":{"password":"{}"}}', "{pw}", "base64"),
    _wrapped("basic", "curl -H 'Authorization: Basic {}' https://x.example", "{user}:{pw}", "base64"),
    _wrapped("npm-auth", "//registry.example.com/:_auth={}", "{user}:{pw}", "base64"),
    _wrapped("dockercfg", '{"auths":{"x":{"auth":"{}"}}}', "{user}:{pw}", "base64"),
    _wrapped("smtp-login", "334 VXNlcm5hbWU6\nYXBw\n334 UGFzc3dvcmQ6\n{}\n235 ok", "{pw}", "base64"),
    _wrapped("ldif-double", "dn: uid=app\nuserPassword:: {}", "{pw}", "base64"),
    _wrapped("script", "echo {} | base64 --decode | bash", "mysql -uroot -p{pw} shop -e 'show tables'", "base64"),
    _wrapped("utf16-script", "powershell -e {}", "$pw = '{pw}'; net user app $pw", "utf16"),
    _wrapped("env-blob", "ENV_FILE={}", "A=1\nSECRET_KEY={pw}\nB=2\n", "base64"),
    _wrapped("jwt-like", "GET /?payload={}", '{"user":"app","password":"{pw}"}', "url64"),
    _wrapped("hex-json", "body(hex)={}", '{"password":"{pw}"}', "hex"),
    _wrapped("hex-pair", "data: {}", "user={user}&password={pw}", "hex"),
    _wrapped("percent-json", "payload={}&v=1", '{"user":"app","password":"{pw}"}', "percent"),
    _wrapped("percent-query", "next={}", "/login?user=app&password={pw}", "percent"),
    _wrapped("percent-value", "https://x.example/login?user=app&passwd={}", "{pw}", "all"),
    _wrapped("entity-attr", '<form data="{}">', 'password="{pw}"', "entities"),
    _wrapped("escaped", '"{}"', "password={pw}", "escapes"),
    _wrapped("bytes", "b'{}'", "PASSWORD={pw}", "bytes"),
    _wrapped("wide", "Login: {}", "password:{pw}", "wide"),
    _wrapped("hidden", "note {}", "password={pw}", "zero"),
    _wrapped("double", "token: {}", "{user}:{pw}", "twice"),
    _wrapped("double-env", "config={}", "DB_PASSWORD={pw}\nDB_USER={user}\n", "twice"),
    _wrapped("data-url", "<img src='data:application/json;base64,{}'>", '{"api_secret": "{pw}"}', "base64"),
)  # fmt: skip

_ALL: tuple[Family, ...] = (
    *(placed(name, text) for name, text in (SHELLS | CLIENTS).items()),
    *_structures(),
    *_ENCODED,
    _code("sms", 6, "G-{} is your verification code.", "Your code: {}", "{} is your login code"),
    _code("two-factor", 6, "2FA code: {}", "enter {} as the two-factor code", "the authenticator code is {}"),
    _code("de", 6, "Ihr Sicherheitscode: {}", "Bestätigungscode {}", "Dein Code lautet {}"),
    _code("es", 6, "Tu código es {}", "código de acceso: {}"),
    _code("fr", 6, "votre code de connexion : {}", "le code de sécurité est {}"),
    _code("pin", 4, "my card PIN is {}", "pin code {}", "the PIN for the door is {}"),
    _code("pin-de", 4, "die PIN ist {}", "PIN: {}", "Geheimzahl {}"),
    _code("cvv", 3, "CVV: {}", "cvc {}", "the security code on the back is {}"),
    Family("backup-codes", "place", lambda r: _backup(r)),  # noqa: PLW0108 - defined below
    Family("alarm", "place", lambda r: _digits(r, "the alarm code is {}")),
    Family("token-line", "place", lambda r: _made("token {}", token(r))),
    Family("account-key", "place", lambda r: _made(
        "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={};EndpointSuffix=core.windows.net",
        base64.b64encode(r.randbytes(64)).decode())),
    Family("shared-access", "place", lambda r: _made(
        "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}",
        base64.b64encode(r.randbytes(32)).decode())),
)  # fmt: skip


def _made(text: str, needle: str) -> Made:
    return Made(text.replace("{}", needle), (needle,))


def _digits(rng: random.Random, text: str) -> Made:
    return _made(text, chars(rng, DIGITS, 6))


def _backup(rng: random.Random) -> Made:
    codes = [f"{chars(rng, ALNUM.lower()[:36], 5)}-{chars(rng, DIGITS, 5)}" for _ in range(3)]
    return Made("Backup codes:\n" + "\n".join(codes), tuple(codes))


FIFTH = tuple(family for family in _ALL if zlib.crc32(family.name.encode()) % 2)
SIXTH = tuple(family for family in _ALL if not zlib.crc32(family.name.encode()) % 2)
