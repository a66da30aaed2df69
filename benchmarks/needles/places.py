r"""Secrets by their place: assignments, flags, headers, files, statements, sentences; and JSON values around them."""

from __future__ import annotations

import base64
import random

from .made import DIGITS, Family, Made, chars, password, phrase, structure, template, token

_TEXTS = {
    "PGPASSWORD": "PGPASSWORD={pw} psql -h {host} -U {user} shop",
    "DB_PASS": "export DB_PASS={pw}",
    "env-quoted": "SMTP_PASSWORD='{pw}'\nSMTP_HOST={host}",
    "env-phrase": 'APP_SECRET="{phrase}"',
    "mysql-p": "mysql -u root -p{pw} shop -e 'select 1'",
    "mysqldump": "mysqldump --user={user} --password={pw} shop > x.sql",
    "curl-u": "curl -s -u {user}:{pw} https://{host}/api",
    "curl-user": "curl --user '{user}:{pw}' -X POST https://{host}/api",
    "flag": "deploy --password {pw} --region eu",
    "flag-equals": "tool --api-key={tok} run",
    "flag-quoted": 'tool --db-password "{phrase}" run',
    "flag-token": "helm repo add x https://{host} --username {user} --token {tok}",
    "argv-text": "subprocess.run(['tool', '--password', '{pw}', '-v'])",
    "redis": "redis-cli -h {host} -a {pw} ping",
    "sshpass": "sshpass -p {pw} ssh {user}@{host}",
    "sshpass-quoted": "sshpass -p '{phrase}' ssh {user}@{host}",
    "docker-login": "docker login -u {user} -p {pw} {host}",
    "netrc": "machine {host} login {user} password {pw}",
    "netrc-lines": "machine {host}\n  login {user}\n  password {pw}\n",
    "k8s-env": '        env:\n        - name: DB_PASSWORD\n          value: {pw}\n        - name: PORT\n          value: "80"',
    "k8s-quoted": '- name: API_TOKEN\n  value: "{tok}"',
    "k8s-string": "kind: Secret\nstringData:\n  password: {pw}\n",
    "kubectl": "kubectl create secret generic db --from-literal=password={pw}",
    "helm-set": "helm upgrade shop ./c --set postgresql.auth.password={pw}",
    "aws-configure": "aws configure set aws_secret_access_key {tok}",
    "aws-file": "[default]\naws_access_key_id = AKIAABCDEFGHIJKLMNOP\naws_secret_access_key = {tok}",
    "authorization-token": "Authorization: token {tok}",
    "authorization-bearer": "> Authorization: Bearer {tok}\n> Accept: */*",
    "authorization-apikey": "Authorization: ApiKey {tok}",
    "authorization-bare": "-H 'Authorization: {tok}'",
    "x-api-key": "X-Api-Key: {tok}",
    "x-auth-token": "x-auth-token: {tok}\nhost: {host}",
    "cookie": "Cookie: theme=dark; sessionid={tok}; lang=de",
    "set-cookie": "Set-Cookie: sid={tok}; Path=/; HttpOnly",
    "xml": "<user>{user}</user><password>{pw}</password>",
    "xml-lines": "<server>\n  <id>x</id>\n  <username>{user}</username>\n  <password>{phrase}</password>\n</server>",
    "xml-prefixed": '<wsse:Password Type="PasswordText">{pw}</wsse:Password>',
    "xml-attribute": '<property name="password" value="{pw}"/>',
    "xml-key": "<apiKey>{tok}</apiKey>",
    "identified": "CREATE USER '{user}'@'%' IDENTIFIED BY '{pw}';",
    "identified-with": "ALTER USER {user} IDENTIFIED WITH mysql_native_password BY '{phrase}';",
    "pg-role": "CREATE ROLE {user} LOGIN PASSWORD '{pw}';",
    "pg-encrypted": "ALTER USER {user} WITH ENCRYPTED PASSWORD '{pw}' VALID UNTIL 'infinity';",
    "set-password": "SET PASSWORD FOR '{user}'@'localhost' = PASSWORD('{pw}');",
    "url": "postgres://{user}:{pw}@{host}:5432/shop",
    "url-slash": "postgres://{user}:ab/{pw}@{host}:5432/shop",
    "url-redis": "redis://:{pw}@{host}:6379/0",
    "url-at": "amqp://{user}:{pw}@9x@{host}/vhost",
    "jdbc": "jdbc:mysql://{host}/shop?user={user}&password={pw}&useSSL=false",
    "ado": "Server={host};Database=shop;User Id={user};Password={pw};Trusted_Connection=False",
    "odbc": "DRIVER=x;SERVER={host};UID={user};PWD={pw}",
    "properties": "db.url=jdbc:x\ndb.password={pw}\n",
    "ini": "[smtp]\nuser = {user}\npass = {pw}\n",
    "yaml": "database:\n  user: {user}\n  password: {pw}\n  port: 5432",
    "yaml-quoted": '  secret_key: "{phrase}"\n',
    "toml": '[db]\npassword = "{pw}"',
    "json-text": '{"user": "{user}", "password": "{pw}"}',
    "json-phrase": '{\n  "db_password": "{phrase}",\n  "port": 1\n}',
    "python": 'conn = connect(host="{host}", user="{user}", password="{pw}")',
    "python-env": 'os.environ["API_TOKEN"] = "{tok}"',
    "python-dict": "{'user': '{user}', 'passwd': '{pw}'}",
    "ruby": "config = { :password => '{pw}', :user => 'x' }",
    "php": "$password = '{pw}';",
    "js": "const apiSecret = `{tok}`;",
    "form": "username={user}&password={pw}&submit=1",
    "multipart": 'Content-Disposition: form-data; name="password"\r\n\r\n{pw}\r\n--x--',
    "is": "Hi, the password is {pw}, can you log in?",
    "is-my": "My password is: {pw}",
    "is-quoted": 'the admin password is "{phrase}" on all of them',
    "is-colon": "Password: {pw}",
    "is-for": "The password for the staging database is {pw}.",
    "is-use": "use {pw} as the password",
    "is-key": "my api key is {tok} if you need it",
    "is-set": "please set my password to {pw}",
    "is-with": "log in as {user} with password {pw}",
    "is-passphrase": "the passphrase: {phrase}",
    "ist": "Das Passwort ist {pw}.",
    "lautet": "Mein Passwort lautet {pw}, bitte ändern",
    "kennwort": "Kennwort: {pw}",
    "passwort-ist": "Das Passwort für den Server ist {pw}",
    "zugang": "Benutzername: {user}\nPasswort: {pw}",
    "schluessel": "Der API-Schlüssel lautet {tok}",
    "ordinal-pass": "user {user} pass {pw}",
}
_FIELDS = (
    "password",
    "db_password",
    "passwd",
    "secret",
    "clientSecret",
    "PASSWORD",
    "user_pwd",
    "passphrase",
    "auth_token",
    "pw",
    "passwort",
)


def _fields(rng: random.Random) -> Made:
    needle = rng.choice((password, phrase))(rng)
    name = rng.choice([f for f in _FIELDS if "token" not in f and "ecret" not in f])
    return Made({"host": "db", name: needle}, (needle,))


def _keys(rng: random.Random) -> Made:
    needle = token(rng)
    return Made(
        {
            "region": "eu",
            rng.choice(
                ("api_key", "apiKey", "secret", "clientSecret", "auth_token", "access-token", "private_key")
            ): needle,
        },
        (needle,),
    )


def _pin(rng: random.Random) -> Made:
    needle = chars(rng, DIGITS, rng.choice((4, 6)))
    return Made(
        rng.choice(("my PIN is {}", "PIN: {}", "Meine PIN lautet {}", "the card's pin is {} ok?")).format(needle),
        (needle,),
    )


def _manifest(rng: random.Random) -> Made:
    needle = base64.b64encode(password(rng).encode()).decode()
    return Made(f"apiVersion: v1\nkind: Secret\ndata:\n  password: {needle}\n", (needle,))


PLACES: tuple[Family, ...] = (
    *(template(name, "place", text) for name, text in _TEXTS.items()),
    Family("fields", "place", _fields),
    Family("keys", "place", _keys),
    Family("pin", "place", _pin),
    Family("manifest", "place", _manifest),
    structure("pair", "place", lambda v: {"env": [{"name": "DB_PASSWORD", "value": v}]}, password),
    structure("pair-key", "place", lambda v: {"variables": [{"key": "API_SECRET", "value": v, "type": "text"}]}, token),
    structure("headers", "place", lambda v: {"headers": {"Authorization": f"token {v}"}}, token),
    structure("headers-key", "place", lambda v: {"headers": {"X-API-Key": v}}, token),
    structure("field-value", "place", lambda v: {"field": "password", "value": v}, password),
    structure("selector", "place", lambda v: {"selector": "#password", "text": v}, password),
    structure("selector-input", "place", lambda v: {"selector": "input[name='passwd']", "value": v}, phrase),
    structure("element", "place", lambda v: {"element": "password field", "ref": "s1e9", "text": v}, password),
    structure("argv", "place", lambda v: {"args": ["tool", "--password", v, "--verbose"]}, password),
    structure("argv-equals", "place", lambda v: {"args": ["tool", f"--token={v}"]}, token),
    structure("argv-curl", "place", lambda v: {"command": ["curl", "-u", f"admin:{v}", "https://x.example"]}, password),
    structure("environment", "place", lambda v: {"env": {"PGPASSWORD": v, "PORT": "1"}}, password),
    structure("auth-pair", "place", lambda v: {"auth": ["admin", v]}, password),
    structure("auth-object", "place", lambda v: {"auth": {"username": "x", "password": v}}, phrase),
)
