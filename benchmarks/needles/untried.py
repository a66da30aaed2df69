"""The ninth and tenth sets, written before the patterns for them: the ninth to mend by, the tenth only to measure.

Dealt by the hash of a family's name, as is what is around a line: other wrappers, services, tools, languages and
numbers of people than in the sets before.
"""

# ruff: noqa: RUF001 - texts in many alphabets
from __future__ import annotations

import base64
import html
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

from .lines import LINES
from .made import DIGITS, Family, Made, chars, luhn, password, structure, template, token
from .nations import form
from .unheard import service

_SERVICES = {
    "airwallex-like": "awx_live_{h48}", "algolia-secured": "algolia-admin-key: {h32}", "authress": "sc_{l14}.{l5}.acc_{l16}.{w60}", "azure-functions": "{w44}AzFu{w6}==",
    "azure-search": "{n42}AzSe{n6}", "azure-registry": "{n42}+ACR{n6}", "azure-events": "{n33}+AEh{n6}=", "azure-redis": "{n33}AzCa{n6}=",
    "brevo-smtp": "xsmtpsib-{h64}-{n16}", "canva": "cnvca{w40}", "chief-tools": "ctp_{n36}", "confluent": "cflt{n60}", "dify": "app-{n24}", "dify-dataset": "dataset-{n24}",
    "devcycle": "dvc_server_{h36}", "dnsimple": "dnsimple_a_{n32}", "swarm": "SWMTKN-1-{l50}-{l25}", "swarm-key": "SWMKEY-1-{n43}", "figma-oauth": "figor_{n40}",
    "gcp-hmac": "GOOG1E{U56}", "highnote": "sk_highnote_{n32}", "ionic": "ion_{n42}", "langfuse": "sk-lf-{uuid}", "langfuse-public": "pk-lf-{uuid}",
    "linkedin": "WPL_AP1.{n16}.{n6}==", "lichess": "lip_{n20}", "localstack": "ls-{n8}-{n4}-{n4}-{n4}-{n12}", "logicmonitor": "lmb_{n64}", "mailersend": "mlsn.{h64}",
    "mongo-atlas": "mdb_sa_sk_{w40}", "newrelic-license": "{h36}FFFFNRAL", "onesignal": "os_v2_app_{l100}", "onfido": "api_live.{n11}.{w32}", "openrouter": "sk-or-v1-{h64}",
    "ory": "ory_st_{n32}", "persona": "persona_production_{uuid}", "pinterest": "pina_{U64}", "samsara": "samsara_api_{n30}", "segment": "sgp_{n64}", "sindri": "sindri_{n32}",
    "telnyx": "KEY01{U30}_{n22}", "thunderstore": "tss_{n32}", "twitch": "oauth:{l30}", "twitter-bearer": "AAAAAAAAAAAAAAAAAAAAA{n90}", "volcengine": "AKLT{n44}", "yandex-aws": "YC{w38}",
    "stytch": "secret-live-{w36}", "svix": "testsk_{n40}", "adyen": "AQE{n150}", "rapidapi": "{h10}msh{h15}p1{h6}jsn{h12}", "trello": "ATTA{h64}", "zoho": "1000.{h32}.{h32}",
    "salesforce": "00D{n12}!AQ{w94}", "ubidots": "BBFF-{n30}", "bitcoin-wif": "L{n51}", "bitcoin-xprv": "xprv9s21ZrQH143K{n96}", "nostr": "nsec1{l58}", "stellar": "S{U55}",
    "kubeadm": "--token {l6}.{l16}", "k3s": "K10{h64}::server:{h32}", "gitpod": "gitpod_pat_{w40}", "depot": "depot_project_{h48}", "coze": "pat_{n64}", "zhipu": "{h32}.{n16}",
    "arize": "ak-{uuid}-{w32}", "braintrust": "sk-{n48}", "linear-webhook": "lin_wh_{n40}", "slack-flow": "xwfp-{d12}-{n40}", "lemon-squeezy": "eyJ0eXAiOiJKV1Qi.{n400}.{w300}",
    "resend-like": "re_{n8}_{n24}", "loops": "{h32}", "pagertree": "pt_live_{n44}", "knock": "sk_{w43}", "liveblocks": "sk_prod_{w64}", "ably": "{n6}.{n6}:{n43}",
    "ably-like": "xVLyHw.{n6}:{w43}", "mux": "mux_secret_{n75}", "courier": "pk_prod_{U28}", "novu": "novu_{h32}", "convex": "prod:happy-animal-123|eyJ2MiI6{n80}=",
    "nango": "nango_sec_{h36}", "cursor": "key_{h64}", "warp": "wk-1.{h64}", "factory": "fk-{n40}", "perplexity-new": "pplx-{n48}", "cohere-named": "co_{n40}", "val-new": "vtwn2_{n27}",
    "ssh-agent": "-----BEGIN EC PRIVATE KEY-----\\n{n64}\\n{n64}\\n-----END EC PRIVATE KEY-----", "onepassword-old": "A3-{U6}-{U6}-{U5}-{U5}-{U5}",
}  # fmt: skip

_EACH_LINE = {
    "journal": "Nov 23 10:14:22 db2 systemd[1]: backup.service: {}",
    "rust-log": "[2026-11-23T10:14:22Z WARN  app::setup] {}",
    "serilog": "[10:14:22 INF] <setup> {}",
    "log4j": "2026-11-23 10:14:22,301 [main] ERROR com.shop.Setup - {}",
    "gitlab-ci": "00:14 $ {}",
    "buildkit": "#12 4.113 {}",
    "kubectl-prefix": "api-7d9f4c-x2x8k api {}",
    "tmux": "~ ❯ {}",
    "vim-numbers": "{} ~",
    "markdown-quote-list": "> - {}",
    "blame": "3f2a91bc (anna 2026-10-02 12) {}",
    "patch-context": " {}",
    "sql-comment": "-- {}",
    "percent-comment": "% {}",
    "rem": "REM {}",
    "ini-comment": "; {}",
    "dotted": "...   {}",
    "mysql-prompt": "mysql> {}",
    "tab": "\t\t{}",
}
_WHOLE = {
    "ask-nl": "Kun je even kijken: {} — het werkt niet.",
    "ask-it": "Ho provato con {} ma non funziona",
    "ask-pt": "Segue abaixo: {} Obrigado!",
    "ask-pl": "Proszę, sprawdź to: {}",
    "xml-cdata-log": '<event level="3"><message>{}</message></event>',
    "diff-hunk": "@@ -1,4 +1,5 @@\n context\n+{}\n other",
    "assert": "AssertionError: expected '{}' to be absent",
    "http-trace": "> POST /x HTTP/1.1\n> Host: a.example\n>\n* upload: {}",
    "toml-multi": 'script = """\n{}\n"""',
    "heredoc": "cat > /etc/app/setup <<'EOF'\n{}\nEOF",
    "js-template": "await run(`{}`);",
    "rich-box": "╭─ output ─╮\n│ {} │\n╰──────────╯",
    "mail-reply": "On Mon, Nov 23, Anna wrote:\n> hello\n{}\n-- \nBob",
    "numbered-answer": "1) stop the service\n2) {}\n3) start it again",
    "parenthesis": "(we still have {} somewhere)",
    "latex": "\\texttt{{}}",
    "rst-literal": "Example::\n\n    {}\n\nDone.",
    "function-tag": "<function_results>\n<output>{}</output>\n</function_results>",
}
_PACKED: dict[str, Callable[[str], str]] = {
    "ndjson-key": lambda t: json.dumps({"ts": 1793614462, "line": t, "n": 4}),
    "list-of-lines": lambda t: json.dumps({"lines": t.split("\n")}),
    "list-repr": lambda t: repr([line + "\n" for line in t.split("\n")]),
    "json-in-yaml": lambda t: "result: " + json.dumps(json.dumps({"output": t})),
    "html": lambda t: "<td>" + html.escape(t) + "</td>",
    "java-string": lambda t: 'String s = "' + t.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '";',
    "bytes-repr": lambda t: "stdout=" + repr(t.encode()),
    "four-levels": lambda t: json.dumps({"a": json.dumps({"b": json.dumps({"c": json.dumps({"d": t})})})}),
    "single-quoted": lambda t: "echo '" + t.replace("'", "'\\''") + "'",
}


def _even(name: str) -> bool:
    return not zlib.crc32(name.encode()) % 2


def _line_by_line(way: str) -> Callable[[str], str]:
    return lambda text: "\n".join(way.replace("{}", line) for line in text.split("\n"))


def _around(way: str) -> Callable[[str], str]:
    return lambda text: way.replace("{}", text)


AROUND = {
    **{name: _line_by_line(way) for name, way in _EACH_LINE.items()},
    **{name: _around(way) for name, way in _WHOLE.items()},
    **_PACKED,
}
_DEALT = {even: [name for name in AROUND if _even("about " + name) is even] for even in (False, True)}


def _surrounded(family: Family) -> Family:
    """Return a family with something around each text of it, of the half that its set has."""

    def make(rng: random.Random) -> Made:
        made = family.make(rng)
        name = rng.choice(_DEALT[_even(family.name)])
        return Made(AROUND[name](made.value), made.needles) if rng.randrange(5) else made

    return Family(family.name, family.group, make)


_STRUCTURES: dict[str, Callable[[str], Any]] = {
    "name-value": lambda v: {"name": "DB_PASSWORD", "value": v},
    "name-values": lambda v: [{"name": "REGION", "value": "eu"}, {"name": "SMTP_PASS", "value": v}],
    "variables": lambda v: {"variables": [{"key": "deployToken", "isSecret": True, "value": v}]},
    "inputs": lambda v: {"inputs": {"username": "app", "user_password": v}},
    "fields-list": lambda v: {"fields": [["login", "app"], ["password", v]]},
    "row-objects": lambda v: {"rows": [{"column": "api_secret", "val": v}]},
    "csv-matrix": lambda v: {"columns": ["host", "login", "passwd"], "rows": [["h", "app", v]]},
    "matrix-value": lambda v: {"table": [["setting", "value"], ["admin_password", v]]},
    "env-map": lambda v: {"services": {"db": {"environment": {"MARIADB_ROOT_PASSWORD": v}}}},
    "vault-kv": lambda v: {"request_id": "x", "data": {"data": {"username": "app", "password": v}}},
    "secret-value": lambda v: {"secretName": "smtp-password", "secretValue": v},
    "fill-step": lambda v: {"action": "fill", "target": {"role": "textbox", "name": "Password"}, "text": v},
    "type-step": lambda v: {"action": "type", "into": "password field", "text": v},
    "steps-list": lambda v: ["click #password", f"type {v}", "press Enter"],
    "actions": lambda v: [{"click": "Passwort"}, {"type_text": v}],
    "computer": lambda v: {"thought": "Now I enter the password.", "action": "type", "text": v},
    "form-data": lambda v: {"form_data": [{"label": "E-mail", "input": "x"}, {"label": "Password", "input": v}]},
    "kwargs": lambda v: {"fn": "connect", "kwargs": {"host": "db", "passwd": v}},
    "args-kw": lambda v: {"args": ["app"], "kw": {"pwd": v}},
    "argv-eq": lambda v: ["pg_restore", "--dbname=shop", f"--password={v}"],
    "argv-short": lambda v: ["mysqldump", "-uroot", f"-p{v}", "shop"],
    "argv-sshpass": lambda v: ["sshpass", "-p", v, "ssh", "app@db"],
    "argv-java": lambda v: ["java", f"-Dspring.datasource.password={v}", "-jar", "app.jar"],
    "argv-env": lambda v: ["docker", "run", "-e", f"MYSQL_ROOT_PASSWORD={v}", "mysql:8"],
    "exec-env": lambda v: {"cmd": ["psql", "-h", "db"], "env": {"PGPASSWORD": v}},
    "http-basic": lambda v: {"url": "https://x.example", "auth": {"type": "basic", "user": "app", "pass": v}},
    "connection": lambda v: {"connection": {"dialect": "mysql", "username": "app", "password": v, "port": 3306}},
    "oauth": lambda v: {"grant_type": "refresh_token", "refresh_token": v, "client_id": "web"},
    "webhook": lambda v: {"webhook": {"url": "https://x.example/h", "signing_secret": v}},
    "cookie-dict": lambda v: {"cookies": {"PHPSESSID": v, "lang": "de"}},
    "header-object": lambda v: {"headers": {"X-Auth-Key": v, "Accept": "*/*"}},
    "header-pairs": lambda v: {"rawHeaders": ["Accept", "*/*", "X-Api-Token", v]},
    "old-new": lambda v: {"field": "password", "old_value": "x", "new_value": v},
    "json-patch": lambda v: {"patch": [{"op": "add", "path": "/spec/apiToken", "value": v}]},
    "qa": lambda v: {"question": "What is the database password?", "answer": v},
    "remember": lambda v: {"memory": f"wifi password of the office: {v}"},
    "tool-note": lambda v: {"note": {"title": "server login", "body": f"root / {v}"}},
    "dotenv-lines": lambda v: {"lines": ["PORT=80", f"JWT_SECRET={v}", "DEBUG=0"]},
    "tf-output": lambda v: {"outputs": {"admin_password": {"sensitive": True, "type": "string", "value": v}}},
    "k8s-env": lambda v: {"env": [{"name": "REDIS_AUTH_TOKEN", "value": v}]},
    "spanish": lambda v: {"usuario": "ana", "contrasena": v},
    "dutch": lambda v: {"gebruiker": "jan", "wachtwoord": v},
    "italian": lambda v: {"utente": "gina", "parola_chiave": v},
    "polish": lambda v: {"login": "ola", "haslo": v},
}


def _bacon(text: str) -> str:
    return "".join(f"chr({ord(c)})+" for c in text).rstrip("+")


_CODES: dict[str, Callable[[str], str]] = {
    "base64-urlsafe-cut": lambda t: base64.urlsafe_b64encode(b"a=1\n" + t.encode()).decode().rstrip("="),
    "base64-crlf": lambda t: base64.encodebytes(t.encode()).decode().replace("\n", "\r\n").strip(),
    "base64-quoted-lines": lambda t: '"' + '"\n"'.join(
        base64.b64encode(t.encode()).decode()[n : n + 20] for n in range(0, len(t) * 4 // 3 + 4, 20)
    ) + '"',
    "base64-in-percent": lambda t: base64.b64encode(t.encode()).decode().replace("=", "%3D").replace("+", "%2B"),
    "hex-dashes": lambda t: t.encode().hex("-"),
    "hex-0x-list": lambda t: " ".join(f"0x{byte:02X}" for byte in t.encode()),
    "hex-lines": lambda t: "\n".join(t.encode().hex()[n : n + 32] for n in range(0, 2 * len(t.encode()), 32)),
    "xxd": lambda t: "\n".join(
        f"{n:08x}: {t.encode()[n : n + 16].hex(' ', -2):<39}  " + t[n : n + 16].replace("\n", ".")
        for n in range(0, len(t), 16)
    ),
    "bytes-mixed": lambda t: "b'" + "".join(c if n % 2 else f"\\x{ord(c):02x}" for n, c in enumerate(t)) + "'",
    "entities-decimal": lambda t: "".join(f"&#{ord(c)};" for c in t),
    "entities-mixed": lambda t: "".join(c if c.isalnum() else f"&#{ord(c)};" for c in t),
    "percent-lower": lambda t: "".join(f"%{byte:02x}" for byte in t.encode()),
    "unicode-mixed": lambda t: "".join(c if n % 3 else f"\\u{ord(c):04x}" for n, c in enumerate(t)),
    "int-list-python": lambda t: "bytes([" + ",".join(str(byte) for byte in t.encode()) + "])",
    "int-spaces": lambda t: " ".join(str(byte) for byte in t.encode()),
    "chr-sum": _bacon,
    "zero-width-space": "\u200b".join,
    "fullwidth": lambda t: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in t),
    "monospace": lambda t: "".join(
        chr(0x1D670 + ord(c) - 65) if "A" <= c <= "Z" else chr(0x1D68A + ord(c) - 97) if "a" <= c <= "z"
        else chr(0x1D7F6 + ord(c) - 48) if "0" <= c <= "9" else c
        for c in t
    ),
    "utf16-base64": lambda t: base64.b64encode(t.encode("utf-16-le")).decode(),
    "utf16-bom": lambda t: base64.b64encode(t.encode("utf-16")).decode(),
    "base85": lambda t: "<~" + base64.a85encode(t.encode()).decode() + "~>",
    "base64-json": lambda t: base64.b64encode(json.dumps({"v": 1, "env": t}).encode()).decode(),
    "jwt-claims": lambda t: "eyJhbGciOiJub25lIn0." + base64.urlsafe_b64encode(json.dumps({"s": t}).encode()).decode().rstrip("=") + ".",
    "base32-lower": lambda t: base64.b32encode(t.encode()).decode().lower(),
    "binary": lambda t: " ".join(f"{byte:08b}" for byte in t.encode()),
}  # fmt: skip
_PLAIN = (
    "DB_PASSWORD={}\nDB_HOST=db1\n", '{"login": "app", "password": "{}"}', "postgres://app:{}@db.example.com/shop",
    "user: app\npassword: {}\nport: 5432\n", "X-Api-Key: {}", "smtp_password = {}",
)  # fmt: skip
_OUTSIDE = ("{}", "value: {}", "blob={}", "we got {} from the server", "'{}'", "result:\n{}\nok")


def _coded(name: str) -> Family:
    def make(rng: random.Random) -> Made:
        needle = rng.choice((password, token))(rng)
        coded = _CODES[name](rng.choice(_PLAIN).replace("{}", needle))
        return Made(rng.choice(_OUTSIDE).replace("{}", coded), (needle, coded, _CODES[name](needle)))

    return Family("coded " + name, "encoded", make)


Number = Callable[[random.Random], str]


def _check(head: str, count: int) -> Number:
    return lambda rng: luhn(head + chars(rng, DIGITS, count))


def _dotted(rng: random.Random) -> str:
    digits = luhn("5412" + chars(rng, DIGITS, 11))
    return ".".join(digits[n : n + 4] for n in range(0, 16, 4))


_PEOPLE: dict[str, tuple[Number, tuple[str, ...]]] = {
    "ssn-spoken": (form("4##-3#-####", "5## 4# ####"), ("my social is {}", "SSN ending? no, the whole one: SSN {}", "social security no. {}")),
    "ssn-bare": (form("4##3#####"), ("ssn={}", "SSN: {}", "social security number is {}")),
    "dob-and-ssn": (form("2##-5#-####"), ("born 04/07/1981, SSN {}", "dob 1981-04-07 ssn {}")),
    "medicaid": (form("@@#####@"), ("Medicaid ID {}", "Medicaid number: {}")),
    "insurance-member": (form("XEA%########", "W##########"), ("member ID {} (Blue Cross)", "insurance member id: {}", "policy holder number {}")),
    "kvnr": (form("@#########"), ("Krankenversichertennummer {}", "KVNR {}", "Versichertennummer: {}")),
    "arbeitnehmer": (form("## ###### @ ###"), ("Rentenversicherungsnummer: {}", "RVNR {}", "SV-Nummer {}")),
    "fuehrerschein": (form("B###@@%##@1"), ("Führerscheinnummer {}", "Führerschein Nr. {}")),
    "reisepass-de": (form("C%%@%%@%%#"), ("Reisepassnummer: {}", "Reisepass {}", "Pass-Nr. {}")),
    "kfz": (form("M-@@ ####"), ("mein Kennzeichen ist {}", "Kfz-Kennzeichen: {}")),
    "carte-vitale": (form("2 7# 0# 75 ### ### ##"), ("carte vitale {}", "n° de sécurité sociale : {}")),
    "cni-fr": (form("###########2", "@##@@####"), ("carte d'identité n° {}", "CNI : {}", "numéro de carte d'identité {}")),
    "siret": (form("8## ### ### 000##"), ("SIRET {}", "n° SIRET : {}")),
    "nss-es": (form("28/########/##", "28 ######## ##"), ("número de la Seguridad Social {}", "NUSS {}", "NSS: {}")),
    "pasaporte-mx": (form("G########"), ("pasaporte mexicano {}", "No. de pasaporte: {}")),
    "nss-mx": (form("###########"), ("NSS {}", "número de seguro social: {}")),
    "ine": (form("@@@@@@8#0#0#09H###"), ("clave de elector {}", "INE: {}")),
    "carta-identita": (form("CA#####@@"), ("carta d'identità {}", "CIE n. {}")),
    "rg-br": (form("%#.###.###-#"), ("RG {}", "meu RG é {}", "identidade: {}")),
    "pis": (form("1##.#####.##-#"), ("PIS {}", "PIS/PASEP: {}")),
    "cnh": (form("0##########"), ("CNH {}", "número da CNH: {}")),
    "cc-pt": (form("######## # @@#"), ("cartão de cidadão {}", "CC n.º {}")),
    "bsn-words": (form("1########"), ("mijn BSN is {}", "Burgerservicenummer {}", "sofinummer {}")),
    "rijbewijs": (form("5#########"), ("rijbewijsnummer {}", "rijbewijs nr. {}")),
    "dowod": (form("@@@######"), ("dowód osobisty {}", "seria i numer dowodu: {}")),
    "ico-like": (form("27######/####"), ("rodné číslo: {}", "r.č. {}")),
    "cnp": (form("1##0#1#40####"), ("CNP {}", "cod numeric personal {}")),
    "egn": (form("7#0#1#####"), ("ЕГН {}", "EGN: {}")),
    "amka": (form("1#0#7######"), ("ΑΜΚΑ {}", "AMKA: {}")),
    "afm": (form("0########"), ("ΑΦΜ {}", "AFM {}")),
    "jmbg": (form("1#0#9##71####"), ("JMBG {}", "matični broj: {}")),
    "isikukood": (form("37#0#1#####"), ("isikukood {}", "isikukood: {}")),
    "asmens": (form("37#0#1#####"), ("asmens kodas {}", "asmens kodas: {}")),
    "kennitala": (form("1#0#7#-###9"), ("kennitala {}", "kt. {}")),
    "hungarian-taj": (form("### ### ###"), ("TAJ szám: {}", "TAJ {}")),
    "passport-ru": (form("45 ## ######", "4### ######"), ("паспорт {}", "паспорт серия и номер {}")),
    "passport-in": (form("K#######"), ("passport no. {}", "my Indian passport: {}")),
    "voter-mx": (form("@@@@@@8#0#0#09M###"), ("clave elector: {}",)),
    "uan": (form("1###########"), ("UAN {}", "PF UAN number: {}")),
    "bvn": (form("22#########"), ("BVN {}", "bank verification number: {}")),
    "nin-ng": (form("###########"), ("NIN {}", "national identification number {}")),
    "kra": (form("A#########@"), ("KRA PIN {}", "KRA PIN: {}")),
    "ktp": (form("3273#######000#"), ("NIK {}", "nomor KTP: {}")),
    "cccd": (form("0############", "0###########"), ("CCCD {}", "số căn cước công dân: {}")),
    "philsys": (form("####-####-####-####"), ("PhilSys number {}", "PSN: {}")),
    "umid": (form("CRN-####-#######-#"), ("UMID {}",)),
    "arc-tw": (form("A1########", "B2########"), ("身分證字號 {}", "身分證：{}")),
    "residence-jp": (form("AB########CD"), ("在留カード番号 {}", "在留カード: {}")),
    "account-us": (form("00########", "4###########"), ("checking account number {}", "account no. {}, routing 021000021", "my bank account is {}")),
    "account-uk": (form("########"), ("account number {} sort code 20-00-00", "a/c {} sc 20-00-00")),
    "konto-de": (form("#########"), ("Kontonummer {} BLZ 37040044", "Kto. {} BLZ 37040044")),
    "clabe": (form("0121800###########"), ("CLABE {}", "cuenta CLABE: {}")),
    "cbu": (form("0170099220000#########"), ("CBU {}", "mi CBU es {}")),
    "card-spoken": (_check("4539", 11), ("my visa is {}", "card number {} exp 09/28", "carte bleue {}", "Kreditkarte {}")),
    "card-dots": (_dotted, ("card {}", "{}", "tarjeta {}")),
    "iban-lower": (form("de89 3704 0044 0532 0130 00"), ("iban {}",)),
    "phone-vn": (form("09## ### ###", "+84 9# ### ####"), ("điện thoại {}", "SĐT: {}")),
    "phone-id": (form("0812-####-####", "+62 812 #### ####"), ("nomor HP {}", "telepon: {}", "WA {}")),
    "phone-ph": (form("0917 ### ####", "+63 917 ### ####"), ("cellphone {}", "contact no. {}")),
    "phone-pk": (form("0300-#######", "+92 300 #######"), ("mobile no {}", "phone: {}")),
    "phone-eg": (form("010########", "+20 10 ########"), ("موبايل {}", "mobile: {}")),
    "phone-sa": (form("05########", "+966 5# ### ####"), ("جوال {}", "mobile {}")),
    "phone-ke": (form("07## ######", "+254 7## ######"), ("simu {}", "phone {}")),
    "phone-gr": (form("69# ### ####", "+30 69########"), ("τηλέφωνο {}", "κινητό: {}")),
    "phone-cz": (form("6## ### ###", "+420 6## ### ###"), ("telefon {}", "mobil: {}")),
    "phone-hu": (form("06 30 ### ####", "+36 30 ### ####"), ("telefonszám: {}", "mobil {}")),
    "phone-ro": (form("07## ### ###", "+40 7## ### ###"), ("telefon {}", "nr. de telefon: {}")),
    "phone-th": (form("08#-###-####", "+66 8# ### ####"), ("โทร {}", "เบอร์ {}")),
    "phone-tw": (form("09##-###-###", "+886 9## ### ###"), ("手機 {}", "電話：{}")),
    "phone-pe": (form("9## ### ###", "+51 9## ### ###"), ("celular {}", "mi número es el {}")),
    "phone-de-said": (form("0171/#######", "0151 ########", "089/######"), ("Sie erreichen mich unter {}", "meine Nummer: {}", "Rückruf bitte an {}")),
    "phone-fr-said": (form("06.##.##.##.##", "07-##-##-##-##", "01 ## ## ## ##"), ("mon numéro est le {}", "joignable au {}", "appelez-moi au {}")),
    "phone-es-said": (form("6## ## ## ##", "9## ### ###"), ("mi teléfono es el {}", "llámame al {}", "móvil {}")),
    "phone-us-said": (form("%## %## ####", "%##%######", "%##.%##.####"), ("you can text {}", "my cell is {}", "call {} after 5", "ph {}")),
    "email-forms": (lambda r: f"{chars(r, 'abcdefghij', 7)}.{chars(r, 'klmnopqrst', 6)}@{chars(r, 'abcdefgh', 6)}.example.com", ("<{}>", "mailto:{}?subject=x", "{};", "[{}](mailto)", "email={}&x=1")),
    "email-spoken": (lambda r: f"{chars(r, 'abcdefghij', 7)} at {chars(r, 'klmnopqrst', 6)} dot com", ("write to {}", "mail: {}")),
    "mac-forms": (lambda r: ":".join(chars(r, "0123456789ABCDEF", 2) for _ in range(6)), ("ether {}", "wifi mac={}", "HWaddr {}")),
    "ip-said": (lambda r: ".".join(str(r.randint(41, 220)) for _ in range(4)), ("logged in from {}", "client_ip={}", "{} - - [23/Nov/2026:10:00:01 +0000]", "ssh root@{}", "x-forwarded-for: {}, 10.0.0.1")),
}  # fmt: skip
_FIELDS = ("{}", "{}", "note: {}", "{} thank you", "Customer wrote: {}", "* {}\n* paid", "Hi, {}. Best, Anna")


def _person(name: str) -> Family:
    number, texts = _PEOPLE[name]

    def make(rng: random.Random) -> Made:
        needle = number(rng)
        return Made(rng.choice(_FIELDS).replace("{}", rng.choice(texts).replace("{}", needle)), (needle,))

    return Family("person " + name, "personal", make)


def _of_services(name: str) -> Family:
    return service(name, _SERVICES[name])


def _codes(name: str, text: str, digits: int) -> Family:
    def make(rng: random.Random) -> Made:
        code = chars(rng, DIGITS, digits)
        return Made(text.replace("{}", code), (code,))

    return _surrounded(Family("code " + name, "place", make))


_SAID_CODES = {
    "pin-card": ("the PIN of my card is {}", 4), "pin-de": ("Meine Karten-PIN: {}", 4), "otp-text": ("Your Acme code is {}. Don't share it.", 6),
    "otp-fr": ("Votre code de connexion : {}", 6), "otp-it": ("Il tuo codice di verifica è {}", 6), "otp-nl": ("Je verificatiecode is {}", 6),
    "otp-pt": ("Seu código de verificação é {}", 6), "cvv-said": ("cvv is {}", 3), "otp-json-like": ("otp={}&trust=1", 6), "tan-de": ("die TAN lautet {}", 6),
}  # fmt: skip


def _pool() -> list[Family]:
    return [
        *(_surrounded(template("line " + name, "place", text)) for name, text in LINES.items()),
        *(structure("held " + name, "place", make, password) for name, make in _STRUCTURES.items()),
        *(_codes(name, text, digits) for name, (text, digits) in _SAID_CODES.items()),
        *map(_of_services, _SERVICES),
        *map(_coded, _CODES),
        *map(_person, _PEOPLE),
    ]


NINTH = tuple(family for family in _pool() if not _even(family.name))
TENTH = tuple(family for family in _pool() if _even(family.name))
