"""The twelfth set, from what recognisers of others look for: noseyparker, detect-secrets, presidio.

Services' keys and places: rules of noseyparker (2026-02-21) and plugins of detect-secrets (2026-04-02), as shapes and as
the lines that their examples show. Numbers of people: presidio's recognisers by country (2026-07-02), each with its own
context words, those of companies, towns and banks left out; where python-stdnum has a register, numbers that pass it.
Encodings are our own, of kinds that no earlier set has. Looked at once before anything was mended by it.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import quopri
import random
import re
import zlib
from collections.abc import Callable

from flywheel.stages.ingest.redaction.patterns.registers import is_given

from .made import ALNUM, DIGITS, HEX, Family, Made, chars, packed, template

_CLASSES = {
    "d": DIGITS, "h": HEX, "l": "abcdefghijklmnopqrstuvwxyz0123456789", "U": "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "n": ALNUM, "w": ALNUM + "_-", "b": ALNUM + "+/", "A": "ABCDEFGHJKLMNPRSTUVWXYZ", "a": "abcdefghijklmnopqrstuvwxyz",
}  # fmt: skip
_PART = re.compile(r"\{([a-zA-Z])([0-9]+)\}")
_UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
_MARKED = {
    "anthropic": "sk-ant-api03-{w95}", "mws": "amzn.mws." + _UUID, "appsync": "da2-{l26}", "crates": "cio{n32}", "dependency-track": "odt_{n32}",
    "bitbucket": "ATBB{n32}", "databricks": "dapi{h32}-2", "teamcity": "eyJ0eXAiOiAiVENWMiJ9.{w36}.{w48}", "grafana": "eyJrIjoi{n80}",
    "glsa": "glsa_{n32}_{h8}", "nral": "{l6}{h30}nral", "nraa": "nraa-{h27}", "nrra": "nrra-{h42}", "nrii": "nrii-{w32}", "pixie": "px-api-" + _UUID,
    "pixie-deploy": "px-dep-" + _UUID, "twitch": "live_{d10}_{n32}", "blynk": "oa2-client-id_{w32}:{w40}", "slack-app": "xapp-{d12}-{n24}",
    "postman": "PMAK-{n24}-{n34}", "mapbox": "tk.{l90}.{l24}", "krb5": "$krb5asrep$23${h32}${h96}", "cisco": "$8${n14}${n43}", "artifactory": "AP6{n32}",
    "doppler": "dp.st.dev.{n42}", "sauce": "sauce-" + _UUID, "facebook": "EAACEdEose0cBA{n90}", "atlassian": "ATATT3xFfGF0{w180}={U8}",
}  # fmt: skip
_BARE = ("{}", "it was {} before", "key={}", "[{}]", "sent '{}' again", '{"v": "{}"}')
_LINES = {
    "aws": "aws_secret_access_key = {b40}", "aws-session": "aws_session_token: {b180}", "codeclimate": "CC_TEST_REPORTER_ID={h64}",
    "django": "# SECURITY WARNING: keep the secret key used in production secret!\nSECRET_KEY = '{n50}'", "fb": "facebook_app_secret => '{h32}'",
    "figma": "figma pat: {h4}-{h8}-{h4}-{h4}-{h4}-{h12}", "azconfig": "Endpoint=https://x.azconfig.io;Id=abcd-l0-s0:{b20};Secret={b43}=",
    "vault-old": "vault token s.{n24}", "unseal": "Unseal Key 1: {b44}", "k8s": "kubeadm join --token {l6}.{l16} 10.0.0.1:6443", "okta": "Authorization: SSWS 00{w40}",
    "k8s-secret": "token-id: {l6}\ntoken-secret: {l16}", "kagi": 'export KAGI="{w11}.{w43}"', "jenkins": "jenkins crumb {h32}", "nasa": "https://api.nasa.gov/x?api_key={n40}",
    "thingsboard": '"provisionDeviceSecret": "{l20}"', "thingsboard-url": "https://thingsboard.cloud/api/v1/{l20}/telemetry", "truenas": "Authorization: Bearer 1-{n64}",
    "wireguard": "[Peer]\nPresharedKey = {b43}=", "wireguard-key": "[Interface]\nPrivateKey={b43}=", "postmark": "POSTMARK_SERVER_TOKEN=" + _UUID,
    "heroku": "heroku_api_key: " + _UUID, "cos": "cos_hmac_secret_access_key={h48}", "softlayer": "https://api.softlayer.com/soap/v3.1/{l64}",
    "cloudant": "https://acme:{h64}@acme.cloudant.com/db", "iam": 'ibm-cloud-iam-key: "{w44}"', "gitalk": "new Gitalk({ clientID: '{h20}', clientSecret: '{h40}'",
    "particle": "curl https://api.particle.io/v1/devices?access_token={h40}", "linkedin": "linkedin_secret='{n16}'", "twitter": "twitter_consumer_secret: {n50}",
    "jenkins-setup": "Please use the following password to proceed to installation:\n\n{h32}\n\nThis may also be found at:", "stream": "stream key: live_{d9}_{n30}",
}  # fmt: skip
_PLACES = {
    "network-credential": 'new NetworkCredential("svc", "{pw}")', "directory-entry": 'new DirectoryEntry("LDAP://dc1", "svc", "{pw}")', "config-add": '<add key="AdminPassword" value="{pw}" />',
    "if": 'if (request.password == "{pw}") return true;', "reverse": "if '{pw}' == my_password: pass", "default": "the default password is '{pw}'", "for-user": "the password for user 'app' is '{pw}'",
    "gradle": "credentials {\n  username 'app'\n  password '{pw}'\n}", "jwt": 'jwt:\n  secret: "{pw}"', "netrc": "machine db1 login app password {pw}", "odbc": "Driver={SQL Server};Uid=app;Pwd={pw};",
    "phpmailer": "$mail->Username = 'app';\n$mail->Password = '{pw}';", "psexec": "psexec \\\\srv1 -u app -p {pw} cmd", "react": "REACT_APP_DB_PASS='{pw}'", "vmware": "Connect-VIServer vc1 -User app -Password {pw}",
    "go": 'my_password := "{pw}"', "c": 'char my_password[25] = "{pw}";', "cpp": 'std::string secret("{tok}");', "assign": 'secret.assign("{tok}", 32);', "objc": 'my_password = @"{pw}";',
    "perl": "my %conf = (password => '{pw}');", "mongo": "mongodb+srv://app:{pw}@c0.example.net/db", "postgres": "postgresql://app:{pw}@db1:5432/x", "hash-rocket": ":api_key => '{tok}'",
}  # fmt: skip

_SAID = ("{name} {}", "{name}: {}", "my {name} is {}", "Customer {name} {}, please check", '{"{name}": "{}"}')
# Recognisers by name: shape, the register of python-stdnum whose check holds ("" without one), context words.
_PEOPLE = {
    "au-medicare": ("{d4} {d5} {d1}", "", "medicare"), "au-tfn": ("{d3} {d3} {d3}", "au.tfn", "tax file number|tfn"), "ca-sin": ("{d3}-{d3}-{d3}", "ca.sin", "numéro d'assurance sociale|social insurance number"),
    "fi-hetu": ("{d6}-{d3}{A1}", "fi.hetu", "personbeteckningen|henkilötunnus|personal identity code"), "de-fuehrerschein": ("{A2}{d8}{A1}", "", "Führerscheinnummer|Fahrerlaubnis"),
    "de-kvnr": ("{A1}{d9}", "", "Krankenversichertennummer|KVNR|Gesundheitskarte|Versichertennummer"), "de-ausweis": ("L{d8}", "", "Personalausweisnummer|Ausweisnummer|Ausweis"),
    "de-kfz": ("B-{A2} {d4}", "", "Kennzeichen|Kfz-Kennzeichen|Nummernschild"), "de-lanr": ("{d9}", "", "LANR|lebenslange Arztnummer"), "de-pass": ("C{d8}", "", "Reisepassnummer|Passnummer"),
    "de-rvnr": ("{d8}{A1}{d3}", "", "Rentenversicherungsnummer|RVNR"), "de-idnr": ("{d11}", "de.idnr", "Steueridentifikationsnummer|steuerid"), "de-stnr": ("{d3}/{d3}/{d5}", "", "Steuernummer|St.-Nr."),
    "in-aadhaar": ("{d4} {d4} {d4}", "in_.aadhaar", "Aadhaar|UIDAI"), "in-pan": ("{A3}P{A1}{d4}{A1}", "in_.pan", "permanent account number|PAN"), "in-passport": ("{A1}{d7}", "", "Indian passport|passport number"),
    "in-vehicle": ("KA01{A2}{d4}", "", "vehicle registration|RTO plate"), "in-voter": ("{A3}{d7}", "in_.epic", "voter id|elector photo identity card"), "it-patente": ("{A2}{d7}{A1}", "", "patente di guida|licenza di guida"),
    "it-cf": ("RSSMRA{d2}A{d2}H501{A1}", "it.codicefiscale", "codice fiscale|cf"), "it-cie": ("CA{d5}{A2}", "", "carta d'identità|documento CIE"), "it-passport": ("{A2}{d7}", "", "passaporto"),
    "kr-licence": ("{d2}-{d2}-{d6}-{d2}", "", "운전면허번호|Korean driver license"), "kr-frn": ("8{d1}0412-5{d6}", "", "외국인등록번호|Foreigner Registration Number|FRN"), "kr-passport": ("M{d8}", "", "대한민국 여권|여권|Korean passport"),
    "kr-rrn": ("8{d1}0412-1{d6}", "", "Korean RRN|Resident Registration Number|rrn"), "ng-nin": ("{d11}", "", "NIN|national identification number|NIMC"), "ng-vehicle": ("{A3}-{d3}{A2}", "", "plate number|vehicle registration"),
    "ph-tin": ("{d3}-{d3}-{d3}-{d3}", "", "TIN|taxpayer identification number|BIR TIN"), "pl-pesel": ("{d11}", "pl.pesel", "PESEL"), "sg-fin": ("S{d7}{A1}", "", "FIN|NRIC"), "za-id": ("8001{d6}08{d1}", "za.idnr", "South African ID|RSA ID|smart id"),
    "es-nie": ("X{d7}{A1}", "es.nie", "número de identificación de extranjero|NIE"), "es-nif": ("{d8}{A1}", "es.nif", "documento nacional de identidad|DNI"), "es-passport": ("{A3}{d6}", "", "número de pasaporte|pasaporte"),
    "se-personnummer": ("{d6}-{d4}", "se.personnummer", "samordningsnummer|svenskt personnummer|personal identity number"), "th-id": ("1{d12}", "", "Thai National ID|TNIN|เลขบัตรประชาชน"), "tr-plate": ("34 {A3} {d3}", "", "araç plaka"),
    "tr-id": ("{d11}", "tr.tckimlik", "TC kimlik|kimlik"), "uk-licence": ("MORGA7{d5}SM9IJ", "", "DVLA licence number|driving licence"), "uk-nhs": ("{d3} {d3} {d4}", "gb.nhs", "NHS number|national health service"),
    "uk-nino": ("AB {d2} {d2} {d2} C", "", "national insurance|NI number"), "uk-passport": ("{A2}{d7}", "", "British passport|HMPO passport|travel document"), "uk-vehicle": ("AB12 {A3}", "", "number plate|VRN|vehicle registration"),
    "us-dea": ("B{A1}{d7}", "", "DEA|medical certificate"), "us-licence": ("{A1}{d8}", "", "driver license|cdls|lic#"), "us-itin": ("9{d2}-7{d1}-{d4}", "", "ITIN|individual taxpayer"), "us-mbi": ("1EG4-TE5-MK{d2}", "", "MBI|medicare beneficiary"),
    "us-npi": ("1{d9}", "", "NPI|national provider identifier"), "us-passport": ("{A1}{d8}", "", "US passport|travel document"), "us-ssn": ("{d3}.{d2}.{d4}", "", "social security|ssid"), "us-bank": ("{d12}", "", "checking account|bank acct"),
}  # fmt: skip


def _bitcoin(text: str) -> str:
    number, letters = int.from_bytes(text.encode()), ""
    while number:
        number, rest = divmod(number, 58)
        letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"[rest] + letters
    return letters


def _folded(text: str) -> str:
    coded = base64.b64encode(text.encode()).decode()
    return "\n".join(f"> {coded[n : n + 24]}" for n in range(0, len(coded), 24))


_CODES: dict[str, Callable[[str], str]] = {
    "uuencode": lambda t: f"begin 644 x\n{''.join(binascii.b2a_uu(t.encode()[n : n + 45]).decode() for n in range(0, len(t.encode()), 45))}`\nend\n",
    "zlib-base64": lambda t: base64.b64encode(zlib.compress(t.encode())).decode(),
    "bzip2-base64": lambda t: base64.b64encode(bz2.compress(t.encode())).decode(),
    "quoted-base64": _folded,
    "ldif": lambda t: f"userPassword:: {base64.b64encode(t.encode()).decode()}",
    "sql-hex": lambda t: f"VALUES (0x{t.encode().hex().upper()})",
    "bytea": lambda t: f"'\\x{t.encode().hex()}'::bytea",
    "go-bytes": lambda t: f"[]byte{{{', '.join(f'0x{c:02x}' for c in t.encode())}}}",
    "chr-joined": lambda t: " & ".join(f"Chr({ord(c)})" for c in t),
    "braced-escapes": lambda t: "".join(f"\\u{{{ord(c):x}}}" for c in t),
    "mime-q": lambda t: f"=?utf-8?Q?{quopri.encodestring(t.encode(), quotetabs=True, header=True).decode()}?=",
    "bits": lambda t: " ".join(f"{c:08b}" for c in t.encode()),
    "base58": _bitcoin,
    "ascii85-adobe": lambda t: base64.a85encode(t.encode(), adobe=True).decode(),
}  # fmt: skip


def _filled(form: str, rng: random.Random) -> str:
    text = _PART.sub(lambda m: chars(rng, _CLASSES[m[1]], int(m[2])), form)
    return text if any(c.isdigit() for c in text) else _filled(form, rng)


def _service(name: str, form: str) -> Family:
    def make(rng: random.Random) -> Made:
        key = _filled(form, rng)
        return Made(rng.choice(_BARE).replace("{}", key), (key,))

    return Family(f"recognised {name}", "vendor", make)


def _line(name: str, form: str) -> Family:
    """Return the family of a line around a key, its last part but one that parts of ids make."""

    def make(rng: random.Random) -> Made:
        if _UUID in form:
            key = _filled(_UUID, rng)
            return Made(form.replace(_UUID, key), (key,))
        longest = max(_PART.finditer(form), key=lambda m: (int(m[2]), m.start()))
        key = _filled(longest[0], rng)
        return Made(
            _filled(form[: longest.start()] + "\0" + form[longest.end() :] + "0", rng)[:-1].replace("\0", key), (key,)
        )

    return Family(f"line {name}", "place", make)


def _person(name: str) -> Family:
    form, register, words = _PEOPLE[name]

    def make(rng: random.Random) -> Made:
        number = _filled(form, rng)
        for _ in range(100_000 * bool(register)):
            if is_given(register, number):
                break
            number = _filled(form, rng)
        return Made(rng.choice(_SAID).replace("{name}", rng.choice(words.split("|"))).replace("{}", number), (number,))

    return Family(f"person {name}", "personal", make)


TWELFTH = (
    *(_service(name, form) for name, form in _MARKED.items()),
    *(_line(name, form) for name, form in _LINES.items()),
    *(template("code " + name, "place", text) for name, text in _PLACES.items()),
    *map(_person, _PEOPLE),
    *(packed(name, code) for name, code in _CODES.items()),
)
