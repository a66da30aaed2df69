r"""Families that were not used to find the patterns: other tools, other files, other ways of saying it."""

from __future__ import annotations

import base64
import json
import random
import urllib.parse

from .made import ALNUM, DIGITS, HEX, Family, Made, chars, luhn, password, structure, template, token, user

_PLACES = {
    "pgpass": "db.internal:5432:shop:{user}:{pw}",
    "wp-config": "define('DB_USER', '{user}');\ndefine('DB_PASSWORD', '{pw}');\ndefine('DB_HOST', 'localhost');",
    "hadoop": "<property>\n  <name>javax.jdo.option.ConnectionPassword</name>\n  <value>{pw}</value>\n</property>",
    "plist": "<key>WebPassword</key>\n<string>{pw}</string>",
    "chpasswd": 'echo "{user}:{pw}" | chpasswd',
    "sudo-stdin": "echo '{pw}' | sudo -S systemctl restart nginx",
    "openssl": "openssl pkcs12 -export -in cert.pem -out out.p12 -passout pass:{pw}",
    "net-use": "net use Z: \\\\{host}\\share /user:CORP\\{user} {pw}",
    "powershell": "$p = ConvertTo-SecureString '{pw}' -AsPlainText -Force",
    "keytool": "keytool -list -keystore ca.jks -storepass {pw}",
    "ldapsearch": "ldapsearch -x -D cn=admin,dc=corp -w {pw} -b dc=corp",
    "smbclient": "smbclient //{host}/share -U {user}%{pw}",
    "zip": "zip -r -P {pw} backup.zip data/",
    "sqlcmd": "sqlcmd -S {host} -U sa -P '{pw}' -Q 'select 1'",
    "mongosh": "mongosh --host {host} -u {user} -p {pw} --authenticationDatabase admin",
    "wget": "wget --http-user={user} --http-passwd={pw} https://{host}/x.tar.gz",
    "prompt": 'Password for user {user}: {pw}\npsql (16.2)\nType "help" for help.',
    "mycnf": '[client]\nuser={user}\npassword="{pw}"\nhost={host}',
    "rails": "production:\n  adapter: postgresql\n  username: {user}\n  password: {pw}\n  pool: 5",
    "spring": "spring.datasource.password={pw}\nspring.datasource.username={user}",
    "appsettings": '{"ConnectionStrings": {"Default": "Server={host};Database=x;User Id={user};Pwd={pw};Encrypt=True"}}',
    "jinja-env": "ENV API_TOKEN={tok}\nRUN make",
    "github-action": "      env:\n        NPM_AUTH: x\n        SIGNING_SECRET: {tok}",
    "har": '{"name": "X-Auth-Token", "value": "{tok}"}',
    "http-dump": "POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
    "user={user}&passwd={pw}&remember=1",
    "fetch-js": "fetch(url, {headers: {'x-api-key': '{tok}', 'accept': '*/*'}})",
    "requests-auth": "requests.get(url, auth=('{user}', '{pw}'))",
    "ts-config": "const client = new Client({ accessToken: '{tok}', host: '{host}' });",
    "java": 'DriverManager.getConnection(url, "{user}", "{pw}"); // dbPassword',
    "go-struct": 'cfg := Config{User: "{user}", Password: "{pw}"}',
    "csv": "username,password,role\n{user},{pw},admin",
    "table": "| service | username | password |\n|---|---|---|\n| wiki | {user} | {pw} |",
    "said-credentials": "You can log in with username {user} and password {pw}.",
    "said-changed": "I have reset your password to {pw}, please change it after the first login.",
    "said-new": "Your new passphrase will be {pw} from tomorrow.",
    "said-temp": "temporary password {pw} expires in 24h",
    "said-key": "here's my API key: {tok}",
    "said-slash": "credentials for staging: {user} / {pw}",
    "gesagt-neu": "Ihr neues Passwort lautet: {pw}",
    "gesagt-wlan": "Der WLAN-Schlüssel ist {pw}.",
    "gesagt-zugang": "Zugangsdaten: Benutzer {user}, Passwort {pw}",
    "gesagt-kennwort": "Bitte mit dem Kennwort {pw} anmelden.",
    "sql-update": "UPDATE accounts SET password = '{pw}' WHERE login = '{user}';",
    "sql-mssql": "CREATE LOGIN [{user}] WITH PASSWORD = N'{pw}', CHECK_POLICY = OFF;",
    "sql-insert": "INSERT INTO users (login, password, role) VALUES ('{user}', '{pw}', 'admin');",
    "vault-kv": "vault kv put secret/shop db_password={pw}",
    "gh-secret": "gh secret set DEPLOY_TOKEN --body {tok}",
    "heroku": "heroku config:set SECRET_KEY_BASE={tok} -a shop",
    "ssm": "aws ssm put-parameter --name /prod/db/password --type SecureString --value {pw}",
    "tfvars": 'db_admin_password = "{pw}"\nregion = "eu-west-1"',
    "ansible": "web1 ansible_host=10.0.0.7 ansible_user={user} ansible_ssh_pass={pw}",
    "sftp-url": "sftp://{user}:{pw}@{host}:22/upload",
    "url-at": "mongodb+srv://{user}:{pw}@{host}/shop?retryWrites=true",
    "private-token": 'curl --header "PRIVATE-TOKEN: {tok}" https://gitlab.example.com/api/v4/projects',
    "query-token": "GET /v1/items?access_token={tok}&page=2 HTTP/1.1",
    "pip-index": "pip install --index-url https://__token__:{tok}@pypi.example.com/simple pkg",
    "npmrc": "//registry.example.com/:_authToken={tok}",
    "composer": '{"http-basic": {"repo.example.com": {"username": "{user}", "password": "{pw}"}}}',
    "locator": "await page.locator('input[type=\"password\"]').fill('{pw}');",
    "selenium": "driver.find_element(By.ID, 'passwd').send_keys('{pw}')",
    "xml-attr": '<datasource jndi="x" user-name="{user}" password="{pw}" pool="5"/>',
    "xml-add": '<add key="SmtpPassword" value="{pw}" />',
    "cdata": "<secret><![CDATA[{pw}]]></secret>",
    "yaml-block": "secrets:\n  - key: JWT_SECRET\n    value: {tok}",
    "toml": '[registry]\ntoken = "{tok}"',
    "digest-2fa": "TOTP secret: {tok}",
}


def _form(needle: str) -> dict[str, object]:
    return {"action": "fill", "fields": [{"name": "Email", "value": "x"}, {"name": "Password", "value": needle}]}


def _cell(rng: random.Random) -> Made:
    needle = password(rng)
    return Made({"columns": ["login", "password"], "rows": [[user(rng), needle]]}, (needle,))


def _basic(rng: random.Random) -> Made:
    needle = password(rng)
    text = base64.b64encode(f"{user(rng)}:{needle}".encode()).decode()
    return Made({"auths": {"ghcr.io": {"auth": text}}}, (needle, text))


def _manifest(rng: random.Random) -> Made:
    needle = base64.b64encode(password(rng).encode()).decode()
    return Made(f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  DB_PASSWORD: {needle}\n", (needle,))


def _env_base64(rng: random.Random) -> Made:
    needle = password(rng)
    text = base64.b64encode(f"DB_HOST=x\nDB_PASSWORD={needle}\nPORT=5432\n".encode()).decode()
    return Made(f"echo {text} | base64 -d > .env", (needle, text))


def _url_encoded(rng: random.Random) -> Made:
    local = f"{user(rng)}.{user(rng)}"
    text = urllib.parse.quote(f"{local}@mail.example", safe="")
    return Made(f"https://shop.example/unsubscribe?u={text}&x=1", (text, local))


def _escaped(rng: random.Random) -> Made:
    local = user(rng) + chars(rng, DIGITS, 3)
    return Made(f"contact: {local}\\u0040mail.example", (f"{local}\\u0040mail.example", local + "@mail.example"))


def _hexdump(rng: random.Random) -> Made:
    needle = f"{user(rng)}:{password(rng)}"
    return Made(f"blob={needle.encode().hex()}", (needle.encode().hex(),))


def _spoken(rng: random.Random) -> Made:
    local = user(rng) + chars(rng, DIGITS, 2)
    text = rng.choice(("{}(at)mail(dot)example", "{} [at] mail [dot] example", "{} AT mail DOT example")).format(local)
    return Made(f"write to {text} please", (text,))


def _nested(rng: random.Random) -> Made:
    needle = password(rng)
    inner = json.dumps({"cfg": json.dumps({"db": {"password": needle}})})
    return Made({"body": inner}, (needle,))


def _card_words(rng: random.Random) -> Made:
    number = luhn("5" + rng.choice("12345") + chars(rng, DIGITS, 13))
    text = rng.choice((".", "\u00a0", "  ", "\u2011")).join(number[n : n + 4] for n in range(0, 16, 4))
    return Made(f"Please charge {text} exp 09/29", (text, number))


def _phone(form: str, words: tuple[str, ...]) -> Family:
    def make(rng: random.Random) -> Made:
        digits = "".join(chars(rng, "23456789", 1) if c == "#" else c for c in form)
        return Made(f"{rng.choice(words)} {digits}", (digits,))

    return Family(f"phone {form}", "personal", make)


def _licence(rng: random.Random) -> Made:
    number = chars(rng, "ABCDEFGHJKLMNPRSTUVWXYZ", 1) + chars(rng, DIGITS, 7)
    return Made(f"driver's license number: {number} (CA)", (number,))


def _passport(rng: random.Random) -> Made:
    number = "C" + chars(rng, "CFGHJKLMNPRTVWXYZ0123456789", 8)
    return Made({"guest": {"passport_no": number, "country": "DE"}}, (number,))


def _routing(rng: random.Random) -> Made:
    while True:
        digits = "0" + rng.choice("12") + chars(rng, DIGITS, 7)
        if sum(int(d) * w for d, w in zip(digits, (3, 7, 1) * 3, strict=True)) % 10 == 0:
            return Made(f"ABA routing no. {digits}, checking", (digits,))


def _dashed(rng: random.Random) -> Made:
    octets = [rng.randint(11, 223), rng.randint(40, 254), rng.randint(1, 254), rng.randint(1, 254)]
    text = "-".join(map(str, octets))
    return Made(f"login from host-{text}.dyn.isp.example at 10:31", (text,))


FIRST: tuple[Family, ...] = (
    *(template(name, "place", text) for name, text in _PLACES.items()),
    structure("form-fields", "place", _form, password),
    structure("playwright", "place", lambda v: {"element": "Password input", "ref": "e14", "text": v}, password),
    structure("header-pairs", "place", lambda v: {"headers": [["X-Api-Key", v], ["Accept", "*/*"]]}, token),
    structure("argv", "place", lambda v: {"cmd": ["mysql", "-u", "root", f"-p{v}", "shop"]}, password),
    structure("argv-flag", "place", lambda v: {"argv": ["restic", "--secret-key", v, "ls"]}, token),
    structure("camel", "place", lambda v: {"config": {"smtpPassword": v, "port": 25}}, password),
    structure("short", "place", lambda v: {"db": {"user": "app", "pass": v}}, password),
    structure("kennwort", "place", lambda v: {"benutzer": "anna", "kennwort": v}, password),
    structure("env-map", "place", lambda v: {"environment": {"STRIPE_WEBHOOK_SECRET": v}}, token),
    structure("env-list", "place", lambda v: {"Env": ["PATH=/bin", f"MYSQL_ROOT_PASSWORD={v}"]}, password),
    Family("cells", "place", _cell),
    Family("docker-auth", "encoded", _basic),
    Family("manifest", "encoded", _manifest),
    Family("env-base64", "encoded", _env_base64),
    Family("url-encoded", "encoded", _url_encoded),
    Family("escaped", "encoded", _escaped),
    Family("hexdump", "encoded", _hexdump),
    Family("spoken", "encoded", _spoken),
    Family("nested", "place", _nested),
    Family("card-words", "personal", _card_words),
    _phone("(0##) 4###-####", ("call me at", "Phone:", "tel.")),
    _phone("0## #### ####", ("ring me on", "mobile", "Tel:")),
    _phone("+81-#0-####-####", ("phone", "at")),
    _phone("0049 1## #######", ("Handy:", "erreichbar unter")),
    _phone("###.###.####", ("cell", "reach me on")),
    _phone("1 ### ### ####", ("phone number is", "fax")),
    _phone("06 ## ## ## ##", ("tél.", "portable :")),
    Family("licence", "personal", _licence),
    Family("passport-field", "personal", _passport),
    Family("routing", "personal", _routing),
    Family("dashed-host", "personal", _dashed),
    Family("azure-sas", "vendor", lambda r: _one(f"AccountKey={chars(r, ALNUM + '+/', 86)}==", r)),
    Family("pulumi", "vendor", lambda r: _one("pul-" + chars(r, HEX, 40), r)),
    Family("rubygems", "vendor", lambda r: _one("rubygems_" + chars(r, HEX, 48), r)),
    Family("airtable", "vendor", lambda r: _one("pat" + chars(r, ALNUM, 14) + "." + chars(r, HEX, 64), r)),
    Family("terraform", "vendor", lambda r: _one(chars(r, ALNUM, 14) + ".atlasv1." + chars(r, ALNUM, 64), r)),
)


def _one(needle: str, rng: random.Random) -> Made:
    return Made(
        rng.choice(("{}", "found {} in the log", "x = '{}'")).format(needle), (needle.partition("=")[2] or needle,)
    )
