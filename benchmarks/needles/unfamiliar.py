"""The fourteenth set: software and countries that the thirteenth has not, looked at once and mended by never.

Mail servers, telephony, games, laboratories, industry, media and accounting; encodings of one more kind; people of
countries further away. The notation is that of `production`.
"""

# ruff: noqa: RUF001 - texts in many languages
from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

from .made import Family, Made
from .production import filled

_FORMS: dict[str, Any] = {
    # telephony, mail, directories
    "sip": "[6001]\ntype=auth\nauth_type=userpass\nusername=6001\npassword=«{pw}»",
    "sip-old": "[6002]\nhost=dynamic\nsecret=«{pw}»\ncontext=office",
    "sip-header": 'Authorization: Digest username="6001", realm="pbx", nonce="x", response="«{h32}»"',
    "ami": "Action: Login\r\nUsername: admin\r\nSecret: «{n14}»\r\n",
    "exim": "PASSWDLINE=mail.{host}:{user}:«{pw}»",
    "fetchmail": 'poll {host} proto imap user "{user}" pass "«{pw}»"',
    "mbsync": "IMAPAccount work\nHost {host}\nUser {user}\nPass «{pw}»",
    "dovecot-sql": "connect = host={host} dbname=mail user={user} password=«{pw}»",
    "slapd": 'rootdn "cn=admin,dc=a"\nrootpw «{pw}»',
    "sssd": "ldap_default_bind_dn = cn=ro\nldap_default_authtok = «{pw}»",
    "krb5-add": "kadmin.local -q 'addprinc -pw «{pw}» {user}'",
    "ktutil": "ktutil:  addent -password -p {user}@A -k 1 -e aes256\nPassword for {user}@A: «{pw}»",
    "freeipa": "ipa-client-install --principal admin --password '«{pw}»' --unattended",
    # networks and devices
    "fortinet": 'config system admin\n edit "admin"\n  set password «{pw}»\n next',
    "paloalto": "set mgt-config users {user} phash «{n30}»",
    "openwrt": "option key '«{phrase}»'\noption encryption 'psk2'",
    "unifi": '{"x_passphrase": "«{phrase}»", "name": "lab"}',
    "bgp": "neighbor 10.0.0.1 password «{pw}»",
    "ospf": "ip ospf message-digest-key 1 md5 «{n14}»",
    "zabbix": "zabbix_get --tls-psk-identity x --tls-psk «{h64}»",
    "nagios": "define command{ command_line check_mysql -H x -u {user} -p '«{pw}»' }",
    "modbus": "opc.tcp://{user}:«{n14}»@10.0.0.4:4840",
    "mqtt-ha": "mqtt:\n  broker: {host}\n  username: {user}\n  password: !secret_value «{pw}»",
    "esphome": "api:\n  encryption:\n    key: «{b43}=»",
    "zigbee": "network_key: «{h32}»",
    "lorawan": "AppKey: «{H32}»\nDevEUI: 70B3D57ED0000001",
    "camera": "http://10.0.0.8/cgi-bin/snapshot.cgi?loginuse=admin&loginpas=«{n12}»",
    # games, media, forums
    "rcon": "rcon.password=«{pw}»\nenable-rcon=true",
    "srcds": '+rcon_password "«{pw}»" +map de_dust2',
    "discord-bot": 'client.login("«{n24}.{n6}.{n38}»")',
    "obs": '{"server": "rtmps://a/live", "key": "live_«{n30}»"}',
    "youtube": "Stream key: «{l4}-{l4}-{l4}-{l4}-{l4}»",
    "icecast": "<source-password>«{pw}»</source-password>",
    "shoutcast": "streamadminpassword_1=«{pw}»",
    "plex": "X-Plex-Token: «{w20}»",
    "sonarr": "<ApiKey>«{h32}»</ApiKey>",
    "phpbb": "$dbuser = '{user}';\n$dbpasswd = '«{pw}»';",
    "moodle": "$CFG->dbpass    = '«{pw}»';",
    "joomla": "public $password = '«{pw}»';\npublic $secret = '«{n16}»';",
    "magento": "'crypt' => ['key' => '«{h32}»'],",
    "drupal": "$settings['hash_salt'] = '«{w74}»';",
    "typo3": "'installToolPassword' => '«{pw}»',",
    # data, science, accounting
    "sas": "libname x oracle user={user} password='«{pw}»' path=orcl;",
    "stata": 'odbc load, dsn("x") user("{user}") password("«{pw}»")',
    "r": 'dbConnect(RPostgres::Postgres(), user = "{user}", password = "«{pw}»")',
    "r-environ": "CENSUS_KEY='«{h40}»'\nREDCAP_TOKEN=«{H32}»",
    "julia": 'LibPQ.Connection("host={host} user={user} password=«{pw}»")',
    "knime": '<entry key="credentials#password" type="xpassword" value="«{n24}»"/>',
    "abap": "CALL FUNCTION 'X' EXPORTING user = '{user}' passwd = '«{pw}»'.",
    "sap": "ASHOST=sap1 SYSNR=00 CLIENT=100 USER={user} PASSWD=«{pw}»",
    "as400": "CRTUSRPRF USRPRF({user}) PASSWORD(«{n9}»)",
    "jcl": "//JOB1 JOB (ACCT),'X',USER={user},PASSWORD=«{U8}»",
    "cobol": 'MOVE "«{n12}»" TO WS-PASSWORD.',
    "datev": "Beraternummer 1234567, Mandant 10000, Kennwort: «{pw}»",
    "quickbooks": "refresh_token=AB11«{n46}»&realmId=123",
    "fints": "fints --blz 10050000 --user {user} --pin «{d5}»",
    "ebics": "passphrase=«{phrase}»\nhostId=EBIX",
    # tools of developers elsewhere
    "nix": 'services.x.adminPassword = "«{pw}»";',
    "guix": '(password (crypt "«{pw}»" "$6$abc"))',
    "cue": 'db: password: "«{pw}»"',
    "jsonnet": "local cfg = { dbPassword:: '«{pw}»' };",
    "dhall": '{ user = "{user}", password = "«{pw}»" }',
    "pkl": 'smtp { username = "{user}" password = "«{pw}»" }',
    "edn": '{:db {:user "{user}" :password "«{pw}»"}}',
    "erlang": '{admin, [{user, "{user}"}, {password, "«{pw}»"}]}.',
    "perl": "my $dbh = DBI->connect($dsn, '{user}', '«{pw}»');",
    "tcl": 'spawn ssh {user}@{host}\nexpect "*?assword*"\nsend -- "«{pw}»\\r"',
    "autoit": 'Send("«{pw}»{ENTER}") ; password',
    "ahk": 'password := "«{pw}»"',
    "applescript": 'do shell script "x" user name "{user}" password "«{pw}»" with administrator privileges',
    "vba": '.Open "Provider=x;Password=«{pw}»;User ID={user}"',
    "delphi": "FDConnection1.Params.Values['Password'] := '«{pw}»';",
    "unity": 'PlayerSettings.Android.keystorePass = "«{pw}»";',
    "flutter": "storePassword=«{pw}»\nkeyPassword=«{pw}»\nkeyAlias=upload",
    "fastlane": 'sigh(username: "x", password: "«{pw}»")',
    "puppeteer": "await page.type('input[type=password]', '«{pw}»')",
    "robot": "Input Password    id:passwd    «{pw}»",
    "gherkin": 'When I fill in "Password" with "«{pw}»"',
    "postman": '{"key": "adminPassword", "value": "«{pw}»", "enabled": true}',
    "k6": "http.post(url, { login: '{user}', password: '«{pw}»' })",
    "jmeter": '<stringProp name="Argument.value">«{pw}»</stringProp><stringProp name="Argument.name">password</stringProp>',
    "burp": "username=admin&passwd=«{n14}»&token=«{h40}»",
    "mimikatz": " * Username : {user}\n * Domain   : CORP\n * Password : «{pw}»",
    "nmap": "| smb-brute:\n|   {user}:«{n12}» => Valid credentials",
    "john": "«{n12}»          ({user})\n1 password hash cracked, 0 left",
    # sentences
    "sv": "lösenordet är «{pw}»",
    "da": "adgangskoden er «{pw}»",
    "fi": "salasana on «{pw}»",
    "cs": "heslo je «{pw}»",
    "hu": "a jelszó: «{pw}»",
    "ro": "parola este «{pw}»",
    "tr": "şifre: «{pw}»",
    "ru": "пароль: «{pw}»",
    "el": "ο κωδικός είναι «{pw}»",
    "ja": "パスワードは「«{pw}»」です",
    "id": "kata sandi: «{pw}»",
    "vi": "mật khẩu: «{pw}»",
}
_PEOPLE = {
    "is": "kennitala «150780-{d4}»", "mt": "karta tal-identità «0{d6}M»", "lv": "personas kods «150780-1{d4}»", "lt": "asmens kodas «38007150{d3}»", "ee": "isikukood «38007150{d3}»",
    "sk": "rodné číslo «800715/{d4}»", "si": "EMŠO «1507980500{d3}»", "rs": "JMBG «1507980710{d3}»", "mk": "ЕМБГ «1507980450{d3}»", "al": "NID «H{d8}A»", "eg": "الرقم القومي «28007150{d6}»",
    "sa": "رقم الهوية «1{d9}»", "ae": "Emirates ID «784-1980-{d7}-{d1}»", "ke": "Kenyan ID no «2{d7}», KRA PIN «A{d9}B»", "ng": "NIN: «{d11}»", "gh": "Ghana Card «GHA-{d9}-{d1}»", "pk": "CNIC «35202-{d7}-{d1}»",
    "bd": "NID নম্বর «{d10}»", "lk": "NIC no «80197{d4}V»", "np": "नागरिकता नं «{d2}-01-72-{d5}»", "vn": "số CCCD «0010800{d5}»", "ph": "SSS number «34-{d7}-{d1}»", "kz": "ИИН «800715{d6}»", "uz": "ПИНФЛ «3150780{d7}»",
    "uy": "cédula «{d1}.{d3}.{d3}-{d1}»", "py": "RUC «{d7}-{d1}»", "ec": "cédula de ciudadanía «17{d8}»", "ve": "cédula «V-{d8}»", "gt": "CUI «{d4} {d5} 0101»", "cr": "cédula «1-0{d3}-0{d3}»",
    "dk-phone": "ring på «20 {d2} {d2} {d2}»", "no-phone": "mobil «91{d1} {d2} {d3}»", "be-phone": "gsm «0470 {d2} {d2} {d2}»", "tr-phone": "cep tel «0532 {d3} {d2} {d2}»", "za-phone": "cell «082 {d3} {d4}»", "ng-phone": "call me on «0803 {d3} {d4}»",
}  # fmt: skip
_CODES: dict[str, Callable[[str], str]] = {
    "yenc-like": lambda t: base64.b32hexencode(t.encode()).decode(), "base16-spaced": lambda t: t.encode().hex(" ", 2), "json-bytes": lambda t: json.dumps({"type": "Buffer", "data": list(t.encode())}),
    "url-of-json-of-url": lambda t: "%7B%22q%22%3A%22" + "".join(f"%25{b:02X}" for b in t.encode()) + "%22%7D", "ps-encoded": lambda t: "powershell -enc " + base64.b64encode(t.encode("utf-16-le")).decode(),
    "b64-of-utf16be": lambda t: base64.b64encode(b"\xfe\xff" + t.encode("utf-16-be")).decode(), "octal-list": lambda t: " ".join(f"{b:03o}" for b in t.encode()), "double-quoted-print": lambda t: "".join(f"=3D{b:02X}" for b in t.encode()),
    "css": lambda t: "".join(f"\\{ord(c):06x}" for c in t), "sql-concat": lambda t: "||".join(f"CHR({ord(c)})" for c in t),
}  # fmt: skip


def _of(name: str, group: str, form: Any) -> Family:
    return Family(f"unfamiliar {name}", group, lambda rng: filled(form, rng))


def _coded(name: str) -> Family:
    def make(rng: random.Random) -> Made:
        inside = filled(
            rng.choice(("DB_PASSWORD=«{pw}» and more", "https://{user}:«{n14}»@{host}/x", "token: «{h40}»")), rng
        )
        coded = _CODES[name](inside.value)
        return Made(rng.choice(("{}", "body: {}", "sent {} off")).replace("{}", coded), (*inside.needles, coded))

    return Family(f"unfamiliar code {name}", "encoded", make)


FOURTEENTH = (
    *(_of(name, "place", form) for name, form in _FORMS.items()),
    *(_of(f"person {name}", "personal", form) for name, form in _PEOPLE.items()),
    *map(_coded, _CODES),
)
