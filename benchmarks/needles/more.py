"""More families that were not used to find the patterns: their first measurement is in docs/figures.md."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

from .made import ALNUM, DIGITS, Family, Made, chars, password, structure, template, token, user

_TEXTS = {
    "compose": "services:\n  db:\n    image: postgres\n    environment:\n      POSTGRES_PASSWORD: {pw}\n      POSTGRES_USER: {user}",
    "compose-list": "    environment:\n      - MYSQL_ROOT_PASSWORD={pw}\n      - TZ=UTC",
    "dockerfile-arg": "docker build --build-arg NPM_TOKEN={tok} .",
    "docker-env": "docker run -d -e POSTGRES_PASSWORD={pw} -p 5432:5432 postgres:16",
    "systemd": '[Service]\nEnvironment="DB_PASSWORD={pw}"\nExecStart=/usr/bin/app',
    "fstab": "//{host}/share /mnt cifs username={user},password={pw},uid=1000 0 0",
    "muttrc": 'set imap_pass = "{pw}"',
    "my-login": "mysql://{user}:{pw}@{host}/shop",
    "proxy": "export https_proxy=http://{user}:{pw}@{host}:3128",
    "git-remote": "git clone https://{user}:{tok}@github.com/acme/shop.git",
    "odbc-ini": "[shop]\nDriver = x\nUID = {user}\nPWD = {pw}",
    "gradle": "storePassword={pw}\nkeyPassword={pw}",
    "wifi": 'network={\n  ssid="home"\n  psk="{pw}"\n}',
    "nmcli": "nmcli dev wifi connect home password {pw}",
    "ftp": "ftp> user {user} {pw}\n331 ok",
    "expect": 'expect "password:"\nsend "{pw}\\r"',
    "vbs": 'conn.Open "Provider=SQLOLEDB;Data Source={host};User ID={user};Password={pw};"',
    "kafka": 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{pw}";',
    "es": "xpack.security.authc.realms.ldap.bind_password: {pw}",
    "nginx": 'proxy_set_header Authorization "Bearer {tok}";',
    "htaccess": "curl -H 'X-Vault-Token: {tok}' https://{host}/v1/secret",
    "graphql": '{"query":"mutation { login(user: \\"{user}\\", password: \\"{pw}\\") { token } }"}',
    "log-kv": "level=info msg=login user={user} password={pw} ip=-",
    "log-json": '{"level":"info","msg":"login","user":"{user}","pwd":"{pw}"}',
    "cli-eq-quoted": "app --user={user} --password='{phrase}' start",
    "short-flag": 'psql "host={host} user={user} password={pw} dbname=x"',
    "terraform-out": '  + master_password = "{pw}"',
    "pulumi": "pulumi config set --secret dbPassword {pw}",
    "ansible-vars": 'vars:\n  become_password: "{pw}"',
    "yaml-flow": "db: {user: {user}, password: {pw}, port: 5432}",
    "props-colon": "app.jwt.secret: {tok}",
    "c-sharp": 'var cred = new NetworkCredential("{user}", "{pw}"); // password',
    "rust": 'let password = "{pw}".to_string();',
    "kotlin": 'val apiToken: String = "{tok}"',
    "bash-read": "DB_PASS='{phrase}' ./run.sh",
    "ps-env": '$env:API_SECRET = "{tok}"',
    "cmd-set": "set DB_PASSWORD={pw}",
    "say1": "hey, the wifi password here is {pw}",
    "say2": "for the demo account the login is {user} and the password is {pw}",
    "say3": "Password for {user}: {pw}",
    "say4": "I changed the root password to {pw} yesterday.",
    "say5": 'It asks for a passphrase, it\'s "{phrase}".',
    "sag1": "Das neue Kennwort lautet {pw}.",
    "sag2": "Passwort ist: {pw} (bitte nicht weitergeben)",
    "sag3": "Benutzer: {user} / Passwort: {pw}",
    "sag4": "Nimm {pw} als Passwort.",
    "xml-soap": "<soap:Header><wsse:UsernameToken><wsse:Username>{user}</wsse:Username><wsse:Password>{pw}</wsse:Password></wsse:UsernameToken></soap:Header>",
    "xml-attr2": "<connection user='{user}' password='{pw}' url='jdbc:x'/>",
    "xml-token": "<token>{tok}</token>",
    "pg-alter": "ALTER ROLE {user} PASSWORD '{pw}';",
    "ora": 'CREATE USER {user} IDENTIFIED BY "{pw}" DEFAULT TABLESPACE users;',
    "sql-set": "SET PASSWORD = '{pw}';",
    "sql-insert2": "INSERT INTO accounts(email, pass_hash, api_token) VALUES ('x', 'y', '{tok}');",
    "psql-out": " login | password \n-------+----------\n {user} | {pw}\n(1 row)",
    "tsv": "name\tpassword\n{user}\t{pw}",
    "http-resp": 'HTTP/1.1 200 OK\nContent-Type: application/json\n\n{"access_token":"{tok}","expires_in":3600}',
    "http-req": "GET / HTTP/1.1\nHost: {host}\nX-API-KEY: {tok}\nAccept: */*",
    "oauth": "grant_type=client_credentials&client_id=x&client_secret={tok}",
    "refresh": "refresh_token={tok}&grant_type=refresh_token",
    "netrc1": "machine api.{host} login {user} password {pw} protocol https",
    "k8s-sealed": '  password: "{pw}"\n  username: "{user}"',
    "cron": "0 3 * * * PGPASSWORD='{pw}' pg_dump shop > /x",
    "mysql-long": "mysql --host={host} --user={user} --password='{pw}' shop",
    "mariadb": "mariadb -h {host} -u{user} -p'{pw}' -e 'show tables'",
    "curl-ssh": 'curl -u "{user}:{pw}" -T x sftp://{host}/x',
    "az": "az login --service-principal -u app -p {pw} --tenant t",
    "redis-auth": "AUTH {pw}",
    "openvpn": "auth-user-pass: {user} {pw}",
}


def _spoken(rng: random.Random) -> Made:
    needle = f"{user(rng)} dot {chars(rng, 'abcdefgh', 6)} at mail dot example dot com"
    return Made(f"mail me: {needle}", (needle,))


def _base64_json(rng: random.Random) -> Made:
    needle = "ghp_" + chars(rng, ALNUM, 36)
    text = base64.b64encode(json.dumps({"a": 1, "tok": needle}).encode()).decode()
    return Made(f"payload {text}", (needle, text))


def _written(
    text: str, value: Callable[[random.Random], str], encoded: Callable[[str], str]
) -> Callable[[random.Random], Made]:
    def make(rng: random.Random) -> Made:
        needle = encoded(value(rng))
        return Made(text.replace("{}", needle), (needle,))

    return make


def _address(rng: random.Random) -> str:
    return f"{user(rng)}{chars(rng, DIGITS, 3)}@mail.example"


def _step(value: str) -> dict[str, Any]:
    return {"steps": [{"action": "type", "target": {"label": "Password"}, "value": value}]}


MORE: tuple[Family, ...] = (
    *(template(name, "place", text) for name, text in _TEXTS.items()),
    structure("step", "place", _step, password),
    structure("feld", "place", lambda v: {"index": 7, "field": "Passwort", "text": v}, password),
    structure("parameter", "place", lambda v: {"parameters": [{"Name": "/prod/api_key", "Value": v}]}, token),
    structure(
        "nested", "place", lambda v: {"connection": {"authentication": {"type": "basic", "password": v}}}, password
    ),
    structure("rows", "place", lambda v: [{"user": "x", "password": v}, {"user": "y", "password": v}], password),
    structure("argv", "place", lambda v: {"args": ["curl", "--user", f"bob:{v}", "https://x.example"]}, password),
    structure(
        "env",
        "place",
        lambda v: {"env": [{"name": "PATH", "value": "/bin"}, {"name": "AUTH_TOKEN", "value": v}]},
        token,
    ),
    Family("base64 json", "encoded", _base64_json),
    Family("spoken", "encoded", _spoken),
    Family(
        "base64 url",
        "encoded",
        _written(
            "https://x.example/v/{}", _address, lambda t: base64.urlsafe_b64encode(t.encode()).decode().rstrip("=")
        ),
    ),
    Family("hex", "encoded", _written("h={}", _address, lambda t: t.encode().hex())),
    Family("commat", "encoded", _written("<a href='mailto:{}'>", _address, lambda t: t.replace("@", "&commat;"))),
)
