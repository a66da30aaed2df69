"""Forms that the 18th and 19th sets showed to pass, with other values; they were mended by, so all must go.

Each text has its secret in «»; `production.filled` fills in passwords, tokens and characters of a class.
"""

# ruff: noqa: RUF001 - texts in many languages
from __future__ import annotations

import random
from collections.abc import Callable

from .made import Family, Made
from .production import filled

_VENDORS = {
    "swarm token": "JoinTokens: {Worker:«SWMTKN-1-{l50}-{l25}»}",
    "nats seed": "-----BEGIN USER NKEY SEED-----\n«SU{B56}»\n------END USER NKEY SEED------",
    "stellar seed": "Keypair.fromSecret('«S{B55}»')",
    "paypal signature": "VERSION=204&SIGNATURE=«AFcWxV21C7fd0v3bYYYRCpSSRl31{n28}»&METHOD=GetBalance",
}
_PLACES = {
    "erlang flag": "+ erl -name a@{host} -setcookie «{U20}» -hidden",
    "erlang release": "RELEASE_COOKIE=«{U20}»",
    "erlang term": '{badmatch,{error,[{username,<<"{user}">>},{password,<<"«{pw}»">>}]}}',
    "erlang broker": 'amqp_params_network,<<"{user}">>,<<"«{pw}»">>,<<"/">>',
    "php serialized": 'a:2:{s:4:"user";s:3:"app";s:8:"password";s:15:"«{pw}»";}',
    "clickhouse function": "SELECT * FROM remoteSecure('{host}:9440', db.events, '{user}', '«{pw}»')",
    "clickhouse engine": "CREATE DATABASE crm ENGINE = MySQL('{host}:3306', 'crm', '{user}', '«{pw}»')",
    "php trace": "#0 db.php(12): PDO->__construct('mysql:host={host}', '{user}', '«{pw}»')",
    "sed": 'sed -i "s|__DB_PASSWORD__|«{n16}»|g" deploy.yaml',
    "snmp user": 'createUser {user} SHA "«{n16}»" AES',
    "oracle userid": "expdp userid=\\'{user}/«{n12}»@PROD\\' schemas=LEDGER",
    "curl option": 'curl_easy_setopt(h, CURLOPT_USERPWD, "{user}:«{pw}»");',
    "pipeline secret": "##vso[task.setvariable variable=KEY;issecret=true]«{pw}»",
    "consul secret": "AccessorID: {h8}-aaaa-4aaa-8aaa-{h12}\nSecretID: «{h8}-{h4}-4{h3}-8{h3}-{h12}»",
    "bundler": "BUNDLE_ENTERPRISE__CONTRIBSYS__COM=«{h8}:{h8}»",
    "cookie jar": ".{host}\tTRUE\t/\tTRUE\t1767225600\tsessionid\t«{h32}»",
    "radius": "radtest {user} «{n12}» 10.0.0.5 0",
    "game server": "steamcmd +login {user} «{n14}» +run_app_build app.vdf +quit",
    "redis user": "user {user} on >«{pw}» ~* &* +@all",
    "smtp login": "S: 334 UGFzc3dvcmQ6\nC: «{n22}==»",
    "cloud-init": "chpasswd:\n  expire: false\n  list: |\n    {user}:«{pw}»\n",
    "aligned": "lease_duration     1h\npassword           «{pw}»\nusername           v-token",
    "character codes": "{password,[«85,100,86,119,83,104,53,90,46,90»]}",
    "imap": 'C: a001 LOGIN {user} "«{pw}»"\nS: a001 OK',
    "parameter pair": "--parameters ParameterKey=MasterPassword,ParameterValue=«{n16}»,UsePreviousValue=false",
    "nested element": "<Password><Value>«{n16}»</Value><PlainText>true</PlainText></Password>",
    "wifi code": "WIFI:S:Hotel;T:WPA;P:«{n12}»;;",
    "esim": "LPA:1$rsp.{host}$«{U12}»",
    "edifact": "UNB+UNOC:3+KESSLER+METRO+250301:2210+000412+«{U11}»'",
    "x12": "ISA*00*          *01*«{U10}»*ZZ*HARTMANN",
    "fints": "HKSAL:3:7'HNSHA:4:2+881204471++«{n9}»'HNHBS:6:1+2'",
    "netsuite": "NLAuth nlauth_account=4411203, nlauth_email={user}, nlauth_signature=«{pw}», nlauth_role=3",
    "odoo": "models.execute_kw('erp', 2, '«{n14}»', 'sale.order', 'read', [ids])",
    "banking pin": 'PIN_37040044_8812044 = "«{n9}»"',
    "sheet": 'Sub Auswertung()\n  ActiveSheet.Unprotect "«{pw}»"',
    "chinese": "密码是«{n12}7»，帮我登录",
    "japanese": "パスワードは「«{n12}7»」です。",
    "hindi": "मेरा पासवर्ड «{n12}7» है",
    "next line": "PASSWORD\n«{n12}7»",
    "security answer": "Sicherheitsfrage: Name des ersten Haustiers. Antwort: «{n12}»",
    "router": "FRITZ!Box, WLAN-Netzwerkschlüssel: «{d4} {d4} {d4} {d4} {d4}»",
    "puk": "PIN1: 0000\nPUK1: «{d8}»",
    "door": "Guest arrives at 22:00, the lockbox code is «7{d3}»",
}
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SPOKEN = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def _family(name: str, group: str, text: str) -> Family:
    def make(rng: random.Random) -> Made:
        shown = text
        for count in (55, 56):
            shown = shown.replace(f"{{B{count}}}", "7" + "".join(rng.choices(_BASE32, k=count - 1)))
        return filled(shown, rng)

    return Family(f"blind {name}", group, make)


def _personal(name: str, make: Callable[[random.Random], tuple[str, str]]) -> Family:
    def made(rng: random.Random) -> Made:
        text, needle = make(rng)
        return Made(text, (needle,))

    return Family(f"blind {name}", "personal", made)


def _spoken(rng: random.Random) -> tuple[str, str]:
    said = " ".join(_SPOKEN[digit] for digit in (0, 7, *rng.sample(range(10), 9)))
    return f"caller: my number is {said} thank you", said


def _hidden(rng: random.Random) -> tuple[str, str]:
    key = rng.randrange(1, 256)
    address = f"{rng.choice('abcdef')}.kessler@nordlys.dev"
    coded = bytes((key, *(byte ^ key for byte in address.encode()))).hex()
    return f'<a class="__cf_email__" data-cfemail="{coded}">[email protected]</a>', coded


def _passport(rng: random.Random) -> tuple[str, str]:
    number = "P" + "".join(rng.choices("0123456789CFGHJK", k=8))
    digit = sum(int(c, 36) * (7, 3, 1)[n % 3] for n, c in enumerate(number)) % 10
    return f"P<D<<KRUEGER<<HEIKE<<<<<<<<<<<<<<<<<<<<<<<<<\n{number}{digit}D<<9303151F3304226<<<<<<<<<<<<<<<4", number


EIGHTEENTH: tuple[Family, ...] = (
    *(_family(name, "vendor", text) for name, text in _VENDORS.items()),
    *(_family(name, "place", text) for name, text in _PLACES.items()),
    _personal("spoken telephone", _spoken),
    _personal("hidden address", _hidden),
    _personal("passport lines", _passport),
)
