r"""Families from the files, commands and sentences in which secrets really are, written before the patterns were seen.

Two sets, dealt by the hash of a family's name: `THIRD` was looked at after the first measurement, to mend the patterns;
`FOURTH` was only ever measured, so that what it gives is what logs of others may expect.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from urllib.parse import quote

from .made import ALNUM, DIGITS, Family, Made, chars, password, structure, template, token, user

_PLACES = {
    # containers and their configuration
    "compose-map": "services:\n  db:\n    image: postgres:16\n    environment:\n      POSTGRES_USER: {user}\n      POSTGRES_PASSWORD: {pw}\n",
    "compose-list": "    environment:\n      - POSTGRES_USER={user}\n      - POSTGRES_PASSWORD={pw}\n      - TZ=UTC",
    "docker-run": "docker run -d -e MYSQL_ROOT_PASSWORD={pw} -p 3306:3306 mysql:8",
    "build-arg": "docker build --build-arg NPM_TOKEN={tok} -t shop .",
    "docker-login": "      - run: docker login -u {user} -p {pw} registry.example.com",
    "string-data": "kind: Secret\nmetadata:\n  name: db\nstringData:\n  username: {user}\n  password: {pw}\n",
    "helm-set": "helm upgrade shop ./chart --set auth.password={pw} --set replicas=2",
    "from-literal": "kubectl create secret generic db --from-literal=username={user} --from-literal=password={pw}",
    # environment files
    "export": "export APP_ENV=prod\nexport SESSION_SECRET={tok}\nexport DB_HOST={host}",
    "quoted-phrase": 'SMTP_PASS="{phrase}"\nSMTP_PORT=587',
    "heredoc-env": "cat > .env <<'EOF'\nAPI_SECRET_KEY={tok}\nDEBUG=1\nEOF",
    "heredoc-sql": "mysql <<SQL\nALTER USER '{user}'@'%' IDENTIFIED BY '{pw}';\nSQL",
    "heredoc-ftp": "ftp -n {host} <<EOF\nuser {user} {pw}\nput report.csv\nEOF",
    "fish": "set -gx VAULT_PASSWORD {pw}",
    "cmd-set": "set DB_PASSWORD={pw}&& python manage.py migrate",
    "setx": 'setx API_SECRET "{tok}" /M',
    # connection strings
    "odbc": "Driver={ODBC Driver 18 for SQL Server};Server=tcp:{host},1433;Database=shop;Uid={user};Pwd={pw};Encrypt=yes;",
    "ado": "Server={host};Database=shop;User Id={user};Password={pw};TrustServerCertificate=True",
    "jdbc-query": "jdbc:postgresql://{host}:5432/shop?user={user}&password={url}&ssl=true",
    "jdbc-oracle": "jdbc:oracle:thin:{user}/{url}@//{host}:1521/ORCL",
    "jdbc-sqlserver": "jdbc:sqlserver://{host}:1433;databaseName=shop;user={user};password={pw};encrypt=true",
    "sqlalchemy": 'create_engine("mysql+pymysql://{user}:{url}@{host}:3306/shop?charset=utf8mb4")',
    "amqp": "broker_url = amqps://{user}:{url}@{host}:5671/%2Fprod",
    "redis-url": "CELERY_BROKER=redis://:{url}@{host}:6379/0",
    "libpq": 'psql "host={host} user={user} password={pw} dbname=shop sslmode=require"',
    "kafka-jaas": 'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{pw}";',
    # LDAP and directories
    "ldapsearch": 'ldapsearch -x -H ldaps://{host} -D "cn={user},dc=example,dc=com" -w {pw} -b dc=example,dc=com "(uid=anna)"',
    "ldap-bind": "bindDN: cn={user},ou=svc,dc=example\nbindCredentials: {pw}\nsearchBase: dc=example",
    # infrastructure as code
    "terraform": 'resource "aws_db_instance" "shop" {\n  username = "{user}"\n  password = "{pw}"\n  port     = 5432\n}',
    "tfvars": 'region             = "eu-west-1"\ndb_master_password = "{pw}"',
    "tf-default": 'variable "db_password" {\n  type    = string\n  default = "{pw}"\n}',
    "ansible-host": "web1 ansible_host=web1.example ansible_user={user} ansible_ssh_pass={pw}",
    "ansible-vars": "  vars:\n    mysql_root_password: {pw}\n    mysql_port: 3306",
    "ansible-task": "- name: create user\n  mysql_user:\n    name: {user}\n    password: '{pw}'\n    priv: '*.*:ALL'",
    "cloud-init": "chpasswd:\n  list: |\n    root:{pw}\n  expire: false",
    "puppet": "mysql::db { 'shop':\n  user     => '{user}',\n  password => '{pw}',\n}",
    # pipelines
    "actions-env": "env:\n  NPM_TOKEN: {tok}\n  NODE_ENV: production",
    "gitlab-ci": 'variables:\n  DEPLOY_PASSWORD: "{pw}"\nscript:\n  - ./deploy.sh',
    "jenkins-cli": "java -jar jenkins-cli.jar -s https://{host} -auth {user}:{tok} build shop",
    "circle": "circleci env set --name DEPLOY_KEY --value {tok}",
    "gh-secret": 'gh secret set API_TOKEN --body "{tok}"',
    # Windows
    "secure-string": "$pw = ConvertTo-SecureString '{pw}' -AsPlainText -Force",
    "ps-credential": '$cred = New-Object System.Management.Automation.PSCredential("{user}", (ConvertTo-SecureString "{pw}" -AsPlainText -Force))',
    "ps-env": "$env:DB_PASSWORD = '{pw}'",
    "net-use": "net use Z: \\\\{host}\\share /user:{user} {pw}",
    "net-user": "net user {user} {pw} /add",
    "reg-file": 'Windows Registry Editor Version 5.00\n\n[HKEY_LOCAL_MACHINE\\SOFTWARE\\Shop]\n"DefaultUserName"="{user}"\n"DefaultPassword"="{pw}"',
    "reg-query": "    DefaultUserName    REG_SZ    {user}\n    DefaultPassword    REG_SZ    {pw}",
    "reg-add": 'reg add "HKLM\\SOFTWARE\\Shop" /v DbPassword /t REG_SZ /d "{pw}" /f',
    "web-config": '<add key="SmtpPassword" value="{pw}" />',
    "runas-schtasks": "schtasks /create /tn backup /tr backup.cmd /sc daily /ru {user} /rp {pw}",
    # HTTP
    "cookie": "Cookie: theme=dark; sessionid={tok}; lang=de",
    "set-cookie": "Set-Cookie: JSESSIONID={tok}; Path=/; HttpOnly; Secure",
    "csrf-cookie": "cookie: csrftoken={tok}; _ga=GA1.2.1",
    "form-body": "POST /login HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\nusername={user}&password={url}&remember=1",
    "multipart": '--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n{pw}\r\n--x--',
    "query-token": "GET /feed?access_token={tok}&page=2 HTTP/1.1",
    "auth-header": "curl -H 'X-Auth-Token: {tok}' https://{host}/v1/items",
    "httpie": "http -a {user}:{pw} https://{host}/api",
    "curl-json": "curl -X POST https://{host}/login -d '{\"login\":\"{user}\",\"password\":\"{pw}\"}'",
    "digest-proxy": "curl --proxy-user {user}:{pw} -x proxy.{host}:3128 https://example.com",
    # GraphQL, SOAP, XML
    "graphql-inline": 'mutation { login(username: "{user}", password: "{pw}") { id } }',
    "ws-security": '<wsse:UsernameToken><wsse:Username>{user}</wsse:Username><wsse:Password Type="wss#PasswordText">{pw}</wsse:Password></wsse:UsernameToken>',
    "data-source": '<dataSource user="{user}" password="{pw}" maxActive="20"/>',
    "tomcat": '<user username="{user}" password="{pw}" roles="manager-gui"/>',
    "spring-bean": '<property name="password" value="{pw}"/>',
    "maven": "<server><id>nexus</id><username>{user}</username><password>{pw}</password></server>",
    "cdata": "<Login><Pass><![CDATA[{pw}]]></Pass></Login>",
    # commands
    "mongodump": "mongodump --host {host} --username={user} --password={pw} --out /backup",
    "az-login": "az login --service-principal -u {user} --tenant t1 --password {pw}",
    "sshpass": "sshpass -p {pw} ssh {user}@{host} uptime",
    "redis-cli": "redis-cli -h {host} -a {pw} ping",
    "mysqldump": "mysqldump -u{user} -p'{pw}' shop > out.sql",
    "wget": "wget --http-user={user} --http-password={pw} https://{host}/f.zip",
    "htpasswd": "htpasswd -bc /etc/nginx/.htpasswd {user} {pw}",
    "smbclient": "smbclient //{host}/share -U {user}%{pw} -c ls",
    "sqlplus": "sqlplus {user}/{url}@ORCL @report.sql",
    "sqlcmd": "sqlcmd -S {host} -U {user} -P {pw} -Q 'select 1'",
    "cqlsh": "cqlsh -u {user} -p {pw} {host}",
    "keytool": "keytool -importkeystore -srckeystore a.p12 -storepass {pw} -noprompt",
    "zip": "zip -P {pw} out.zip report.csv",
    "7z": "7z x -p{pw} backup.7z",
    "openssl-k": "openssl enc -d -aes-256-cbc -in f.enc -k {pw}",
    "aws-configure": "aws configure set aws_secret_access_key {tok}",
    "vault-kv": "vault kv put secret/db user={user} password={pw}",
    "svn": "svn checkout --username {user} --password {pw} --non-interactive svn://{host}/shop",
    "kinit": "echo {pw} | kinit {user}@EXAMPLE.COM",
    "nmcli": "nmcli dev wifi connect home password {pw}",
    "rabbitmqctl": "rabbitmqctl add_user {user} {pw}",
    "ipmitool": "ipmitool -I lanplus -H {host} -U {user} -P {pw} power status",
    "twine": "twine upload -u __token__ -p {tok} dist/*",
    "mosquitto": "mosquitto_pub -h {host} -u {user} -P {pw} -t shop/orders -m 1",
    # prompts
    "gpg-prompt": "gpg: encrypted with 4096-bit RSA key\nEnter passphrase: {phrase}\n",
    "keygen-flag": "ssh-keygen -t ed25519 -N '{phrase}' -f ~/.ssh/id_ed25519",
    "keygen-prompt": "Enter passphrase (empty for no passphrase): {pw}\nEnter same passphrase again: {pw}",
    "gpg-flag": "gpg --batch --yes --passphrase {pw} -d secrets.gpg",
    "sudo-prompt": "[sudo] password for {user}: {pw}",
    "login-prompt": "login: {user}\nPassword: {pw}\nLast login: Mon Oct  5 09:12:44 2026",
    "expect": 'expect "Password:"\nsend "{pw}\\r"',
    "pexpect": 'child.expect("assword:")\nchild.sendline("{pw}")',
    # configuration files
    "npmrc": "//registry.npmjs.org/:_authToken={tok}\nalways-auth=true",
    "pypirc": "[pypi]\nusername = __token__\npassword = {tok}",
    "git-remote": "git remote set-url origin https://oauth2:{tok}@gitlab.example.com/a/b.git",
    "pip-index": "pip install --index-url https://{user}:{url}@pypi.example.com/simple shop",
    "cargo": '[registry]\ntoken = "{tok}"',
    "gradle": "signing.keyId=AB12\nsigning.password={pw}",
    "spring": "spring.datasource.username={user}\nspring.datasource.password={pw}",
    "my-cnf": "[client]\nuser={user}\npassword={pw}\nhost={host}",
    "grafana": "[security]\nadmin_user = {user}\nadmin_password = {pw}",
    "rails": "production:\n  secret_key_base: {tok}",
    "redis-conf": "bind 127.0.0.1\nrequirepass {pw}\nappendonly yes",
    "wpa": 'network={\n  ssid="home"\n  psk="{pw}"\n}',
    "radius": "client lan {\n  ipaddr = 10.0.0.0/8\n  secret = {pw}\n}",
    "sasl-passwd": "[smtp.example.com]:587 {user}:{pw}",
    "cisco": "username {user} privilege 15 password 0 {pw}",
    "snmp": "snmp-server community {pw} RO",
    "yaml-block": "credentials:\n  user: {user}\n  password: |\n    {pw}\n  port: 5432",
    "yaml-folded": "apiToken: >-\n  {tok}\nretries: 3",
    "yaml-flow": "db: {user: {user}, password: {pw}, port: 5432}",
    "yaml-anchor": "password: &pw '{pw}'",
    # source code
    "kwarg": "psycopg2.connect(host='{host}', user='{user}', password='{pw}')",
    "js-object": "const client = new Client({ user: '{user}', password: '{pw}' })",
    "java-setter": 'ds.setUsername("{user}"); ds.setPassword("{pw}");',
    "go-struct": 'cfg := Config{Username: "{user}", Password: "{pw}"}',
    "csharp": 'client.Credentials = new NetworkCredential("{user}", "{pw}");',
    "ruby-hash": "Mysql2::Client.new(:username => '{user}', :password => '{pw}')",
    "auth-tuple": "requests.get(url, auth=('{user}', '{pw}'))",
    "basic-auth": "session.auth = HTTPBasicAuth('{user}', '{pw}')",
    "playwright": "await page.fill('#password', '{pw}')",
    "selenium": 'driver.find_element(By.ID, "password").send_keys("{pw}")',
    "cypress": "cy.get('input[name=password]').type('{pw}')",
    "mongo-shell": 'db.createUser({user: "{user}", pwd: "{pw}", roles: ["readWrite"]})',
    "rust-env": 'std::env::set_var("DB_PASSWORD", "{pw}");',
    "os-environ": 'os.environ["OPENAI_SECRET"] = "{tok}"',
    "paramiko": "ssh.connect('{host}', 22, '{user}', '{pw}')",
    "smtplib": "server.login('{user}', '{pw}')",
    # SQL
    "create-role": "CREATE ROLE {user} WITH LOGIN PASSWORD '{pw}';",
    "set-password": "SET PASSWORD FOR '{user}'@'localhost' = PASSWORD('{pw}');",
    "create-login": "CREATE LOGIN {user} WITH PASSWORD = N'{pw}';",
    "insert": "INSERT INTO users (login, password) VALUES ('{user}', '{pw}');",
    "update": "UPDATE users SET password='{pw}', active=1 WHERE login='{user}';",
    "pgcrypto": "SELECT crypt('{pw}', gen_salt('bf'));",
    # sentences
    "de-lautet": "Das neue Passwort für den Router lautet {pw}.",
    "de-colon": "Zugangsdaten: Benutzer {user}, Kennwort {pw}",
    "fr-is": "Le mot de passe du compte est {pw}, merci.",
    "fr-colon": "identifiant : {user}\nmot de passe : {pw}",
    "es-is": "La contraseña es {pw} y caduca mañana.",
    "es-colon": "usuario: {user} contraseña: {pw}",
    "pt-is": "a senha é {pw}",
    "it-is": "la password è {pw}",
    "en-slash": "You can log in with {user} / {pw} on the staging box.",
    "en-set-to": "I've set your temporary password to {pw}",
    "en-use": "use {pw} as the password when it asks",
    "en-changed": "the admin password was changed from {pw} yesterday",
    # tables
    "csv": "user,password,role\n{user},{pw},admin",
    "markdown": "| User | Password |\n|------|----------|\n| {user} | {pw} |",
    "log-kv": 'level=info msg="login" user={user} password={pw} status=200',
    "imap": 'a1 LOGIN {user} "{pw}"',
    "input-value": '<input type="password" name="pw" id="pw" value="{pw}">',
}  # fmt: skip


def _plain(rng: random.Random) -> str:
    """Return a password that needs no escapes in a URL."""
    return next(pw for pw in iter(lambda: password(rng), None) if not set(pw) & set("#%+*!?^~"))


def placed(name: str, text: str) -> Family:
    """Return the family of a text; {url} in it is a password that needs no escapes in a URL."""
    if "{url}" not in text:
        return template(name, "place", text)
    base = template(name, "place", text.replace("{url}", "\0"))

    def make(rng: random.Random) -> Made:
        needle = _plain(rng)
        return Made(base.make(rng).value.replace("\0", needle), (needle,))

    return Family(name, "place", make)


def _sentence(name: str, *texts: str, digits: int = 6) -> Family:
    """Return the family of sentences that say a code of digits."""

    def make(rng: random.Random) -> Made:
        code = chars(rng, DIGITS, digits)
        return Made(rng.choice(texts).replace("{}", code), (code,))

    return Family(name, "place", make)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _coded(name: str, write: str, of: str = "{pw}", *, code: str = "base64") -> Family:
    """Return the family of an encoded text in another: `of` is encoded and put for {} in `write`."""

    def make(rng: random.Random) -> Made:
        needle = password(rng)
        inner = of.replace("{user}", user(rng)).replace("{pw}", needle)
        coded = {
            "base64": lambda: _b64(inner),
            "url64": lambda: base64.urlsafe_b64encode(inner.encode()).decode().rstrip("="),
            "utf16": lambda: base64.b64encode(inner.encode("utf-16-le")).decode(),
            "hex": lambda: inner.encode().hex(),
            "percent": lambda: "".join(f"%{byte:02X}" for byte in inner.encode()),
            "form": lambda: quote(inner, safe=""),
            "json": lambda: json.dumps(inner)[1:-1].replace("/", "\\/"),
            "entities": lambda: "".join(f"&#x{ord(c):x};" for c in inner),
        }[code]()
        return Made(write.replace("{}", coded), tuple({needle, coded} if code != "json" else {needle}))

    return Family(name, "encoded", make)


def _cookies(value: str) -> list[dict[str, object]]:
    return [
        {"name": "lang", "value": "de", "domain": ".shop.example"},
        {"name": "session", "value": value, "domain": ".shop.example", "httpOnly": True},
    ]


_QUERY = "mutation Login($email: String!, $password: String!) { login(email: $email, password: $password) { id } }"
_ALL: tuple[Family, ...] = (
    *(placed(name, text) for name, text in _PLACES.items()),
    structure("graphql", "place", lambda v: {"query": _QUERY, "variables": {"email": "x", "password": v}}, password),
    structure("graphql-input", "place", lambda v: {"variables": {"input": {"login": "x", "newPassword": v}}}, password),
    structure("twice-nested", "place", lambda v: {"body": json.dumps({"auth": json.dumps({"secret": v})})}, password),
    structure("connection", "place", lambda v: {"ConnectionStrings": {"Default": f"Server=db;Pwd={v};"}}, password),
    structure("key-value", "place", lambda v: [{"key": "DB_PASSWORD", "value": v, "secret": True}], password),
    structure("field", "place", lambda v: {"type": "password", "label": "Passwort", "text": v}, password),
    structure("secrets-map", "place", lambda v: {"secrets": {"stripe": v, "region": "eu"}}, token),
    structure("wrapped", "place", lambda v: {"password": {"value": v, "sensitive": True}}, password),
    structure("listed", "place", lambda v: {"passwords": [v]}, password),
    structure("auth-pair", "place", lambda v: {"auth": ["app", v], "url": "https://a.example"}, password),
    structure("basic", "place", lambda v: {"basic_auth": f"app:{v}"}, password),
    structure("cookie-jar", "place", lambda v: {"cookies": _cookies(v)}, token),
    structure("cookie-header", "place", lambda v: {"headers": {"Cookie": f"a=b; sid={v}"}}, token),
    structure("har", "place", lambda v: {"postData": {"params": [{"name": "password", "value": v}]}}, password),
    structure("tool-env", "place", lambda v: {"cmd": "deploy", "env": [{"name": "X_TOKEN", "value": v}]}, token),
    structure("fill-form", "place", lambda v: {"fields": [{"name": "Password", "type": "textbox", "value": v}]}, password),
    structure("two-factor", "place", lambda v: {"user": "anna", "otp_code": v}, lambda r: chars(r, DIGITS, 6)),
    structure("pin-field", "place", lambda v: {"account": "main", "pin": v}, lambda r: chars(r, DIGITS, 4)),
    structure("tf-state", "place", lambda v: {"outputs": {"db_password": {"value": v, "type": "string"}}}, password),
    _sentence("otp-en", "Your verification code is {}. It expires in 10 minutes.", "use code {} to sign in",
              "{} is your one-time passcode", "enter the OTP {} within 5 minutes"),
    _sentence("otp-de", "Ihr Bestätigungscode lautet {}.", "Ihre TAN: {}", "Der Einmalcode ist {}"),
    _sentence("otp-fr", "Votre code de vérification est {}", "Code de sécurité : {}"),
    _sentence("otp-es", "Su código de verificación es {}", "código de seguridad: {}"),
    _sentence("pin-en", "my PIN is {}", "PIN: {}", "the pin for the card is {}", digits=4),
    _sentence("pin-de", "meine PIN lautet {}", "PIN-Nummer: {}", digits=4),
    _sentence("pin-fr", "mon code PIN est le {}", "code PIN : {}", digits=4),
    _sentence("pin-es", "mi PIN es {}", "el PIN de la tarjeta es {}", digits=4),
    _coded("ps-encoded", "powershell -EncodedCommand {}", "net user {user} {pw} /add", code="utf16"),
    _coded("auth-plain", "AUTH PLAIN {}\r\n235 2.7.0 OK", "\0{user}\0{pw}"),
    _coded("basic-lower", "authorization: basic {}", "{user}:{pw}"),
    _coded("secret-data", "kind: Secret\ndata:\n  password: {}\n"),
    _coded("echo-decode", "echo {} | base64 -d > .env", "DB_PASSWORD={pw}\nDB_USER={user}\n"),
    _coded("url64-json", "state={}&scope=all", '{"login":"{user}","password":"{pw}"}', code="url64"),
    _coded("hex-line", "payload: {}", "password={pw}", code="hex"),
    _coded("percent-all", "user=anna&password={}&x=1", code="percent"),
    _coded("percent-url", "https://anna:{}@db.example.com/x", code="form"),
    _coded("percent-body", "data={}", '{"password": "{pw}"}', code="form"),
    _coded("entities", '<user name="anna" password="{}"/>', code="entities"),
    _coded("json-text", 'print("{}")', 'login: {"password": "{pw}"}', code="json"),
    _coded("data-uri", "data:text/plain;base64,{}", "user: {user}\npassword: {pw}\n"),
    _coded("docker-auth", '{"auths": {"registry.example": {"auth": "{}"}}}', "{user}:{pw}"),
    _coded("userdata", 'user_data_base64 = "{}"', "#!/bin/bash\necho 'root:{pw}' | chpasswd\n"),
    _coded("git-header", "git -c http.extraheader='Authorization: Basic {}' fetch", "x-access-token:{pw}"),
    Family("wireguard", "place", lambda r: _line("PrivateKey = {}", base64.b64encode(r.randbytes(32)).decode())),
    Family("hmac-header", "place", lambda r: _line("X-Signature-Key: {}", chars(r, ALNUM, 28))),
)  # fmt: skip


def _line(text: str, needle: str) -> Made:
    return Made(text.format(needle), (needle,))


def _is_third(family: Family) -> bool:
    return zlib.crc32(family.name.encode()) % 2 == 0


THIRD = tuple(family for family in _ALL if _is_third(family))
FOURTH = tuple(family for family in _ALL if not _is_third(family))
