"""The fifteenth set: the forms in which secrets pass, one after another, in many natural variants, written blind.

The notation is that of `production`, and `⟦a¦b⟧` is one of several. `{name}` is a variable that holds a password,
`{flag}` an option that takes one, `{strong}` a password with signs that shells, addresses and XML use too. Encodings and
people's numbers are in `enumerated_people`.
"""

# ruff: noqa: RUF001 - texts in many languages
from __future__ import annotations

import random
import re
from typing import Any

from .made import ALNUM, DIGITS, WORDS, Family, Made, chars
from .production import filled

_NAMES = (
    "PGPASSWORD", "DB_PASS", "DB_PWD", "MYSQL_PWD", "REDISCLI_AUTH", "SMTP_PASSWD", "POSTGRES_PASSWORD", "ADMIN_PW", "RABBITMQ_DEFAULT_PASS", "LDAP_BIND_PASSWORD", "SUDO_PASS", "vault_password", "KEYSTORE_PASS", "MONGO_INITDB_ROOT_PASSWORD",
    "db.password", "spring.datasource.password", "ftpPassword", "userPwd", "app_secret", "WIFI_PASSPHRASE", "GRAFANA_ADMIN_PASSWORD", "MSSQL_SA_PASSWORD", "dbPass", "SSHPASS", "ROOT_PW", "BACKUP_PASSPHRASE",
)  # fmt: skip
_SHELL_NAMES = tuple(name for name in _NAMES if "." not in name)
_FLAGS = ("password", "passwd", "pass", "passphrase", "db-password", "admin-password", "auth-token", "secret-key", "api-key", "client-secret", "redis-password", "pwd", "smtp-pass", "docker-password", "token")  # fmt: skip
_CHOICE = re.compile("⟦([^⟦⟧]*)⟧")


def strong(rng: random.Random) -> str:
    """Return a password with signs in it, as rules for passwords ask for."""
    word = rng.choice(WORDS)
    return rng.choice((
        f"{word.capitalize()}@{chars(rng, DIGITS, 4)}", f"{word[:3]}/{chars(rng, ALNUM, 6)}+{chars(rng, ALNUM, 4)}", f"{chars(rng, ALNUM, 5)}&{chars(rng, ALNUM, 5)}$", f"P@ss-{chars(rng, ALNUM, 6)}!",
        f"{word[0].upper()}{chars(rng, DIGITS, 1)}{word[1:]}&{chars(rng, DIGITS, 2)}", f"{word}{chars(rng, DIGITS, 1)}", f"{chars(rng, ALNUM, 4)}%{chars(rng, ALNUM, 4)}#{chars(rng, DIGITS, 2)}", f"~{chars(rng, ALNUM, 9)}=",
    ))  # fmt: skip


def varied(form: Any, rng: random.Random) -> Made:
    """Return a form with one of each choice, and its parts filled in."""
    return filled(_chosen(form, rng), rng)


def _chosen(form: Any, rng: random.Random) -> Any:
    if isinstance(form, dict):
        return {_chosen(key, rng): _chosen(item, rng) for key, item in form.items()}
    if isinstance(form, list):
        return [_chosen(item, rng) for item in form]
    if not isinstance(form, str):
        return form
    while _CHOICE.search(form):
        form = _CHOICE.sub(lambda match: rng.choice(match[1].split("¦")), form)
    for part, values in (("{name}", _SHELL_NAMES), ("{key}", _NAMES), ("{flag}", _FLAGS)):
        while part in form:
            form = form.replace(part, rng.choice(values), 1)
    while "{strong}" in form:
        form = form.replace("{strong}", strong(rng).replace("{", "("), 1)
    return form


PLACES: dict[str, Any] = {
    # assignments in shells, files and code
    "env-command": "{name}=«{pw}» ⟦psql -h {host} -U {user} shop -c 'select 1'¦pg_dump {user} > /tmp/x.sql¦./deploy.sh --now¦python manage.py migrate¦mysqldump shop¦redis-cli ping⟧",
    "env-command-quoted": "{name}=⟦'«{strong}»'¦\"«{strong}»\"⟧ ⟦psql -h {host}¦./run.sh¦make release⟧",
    "env-export": "⟦export¦declare -x¦typeset -x¦local¦readonly¦setx¦set⟧ {name}=⟦«{pw}»¦\"«{pw}»\"¦'«{phrase}»'⟧",
    "env-two": "export DB_USER={user} {name}=«{pw}» DB_HOST={host} && ./start",
    "env-command-env": "⟦env¦sudo env¦sudo -E env¦nohup env⟧ PATH=/usr/bin {name}=«{pw}» ⟦./job¦java -jar app.jar⟧",
    "env-powershell": "$env:{name} = ⟦\"«{strong}»\"¦'«{pw}»'⟧⟦; ./run.ps1¦⟧",
    "env-cmd": 'set "{name}=«{pw}»" && run.bat',
    "env-csh": "setenv {name} «{pw}»",
    "env-fish": "set -gx {name} ⟦«{pw}»¦'«{strong}»'⟧",
    "env-docker": "docker run -d ⟦-e¦--env⟧ {name}=«{pw}» -p 5432:5432 ⟦postgres:16¦mysql:8¦acme/app⟧",
    "env-docker-quoted": 'docker run --rm -e "{name}=«{strong}»" acme/app:1.2',
    "env-dockerfile": "FROM acme/base\n⟦ENV {name} «{pw}»¦ENV {name}=«{pw}»¦ARG {name}=«{pw}»⟧\nRUN ./build",
    "env-compose": "environment:\n⟦  {name}: «{pw}»¦  - {name}=«{pw}»¦  {name}: '«{strong}»'⟧\nports: ['80:80']",
    "env-file": "DB_HOST={host}\nDB_USER={user}\n{key}=«{strong}»\nDB_PORT=5432",
    "env-printed": "HOME=/root\nLANG=C\n{name}=«{pw}»\nTERM=xterm",
    "env-dict": {"command": "./run", "env": {"{name}": "«{pw}»", "TZ": "UTC"}},
    "env-list": {"image": "acme/app", "env": ["TZ=UTC", "{name}=«{strong}»"]},
    "env-pairs": {"env": [{"⟦name¦Name¦key⟧": "{name}", "⟦value¦Value⟧": "«{pw}»"}]},
    "env-python": "os.environ[⟦'{name}'] = '«{pw}»'¦\"{name}\"] = \"«{pw}»\"⟧",
    "env-getenv": "os.getenv(⟦'{name}', '«{pw}»'¦\"{name}\", default=\"«{pw}»\"⟧)",
    "env-node": "process.env.{name} = ⟦'«{pw}»'¦`«{pw}»`¦\"«{strong}»\"⟧;",
    "env-node-default": "const pw = process.env.{name} ⟦||¦??⟧ '«{pw}»';",
    "env-ruby": "ENV⟦['{name}'] ||= '«{pw}»'¦.fetch('{name}', '«{pw}»')⟧",
    "env-go": 'os.Setenv("{name}", ⟦"«{pw}»"¦`«{pw}»`⟧)',
    "env-php": "⟦putenv('{name}=«{pw}»');¦define('{name}', '«{strong}»');¦$_ENV['{name}'] = '«{pw}»';⟧",
    "env-java": 'System.setProperty("{key}", "«{pw}»");',
    "env-jvm": "java -D{key}=«{pw}» -jar app.jar",
    "env-trace": "+ {name}=⟦«{pw}»¦'«{strong}»'⟧\n+ psql -h {host}",
    "env-gha": 'echo "{name}=«{pw}»" >> $GITHUB_ENV',
    "env-heredoc": "cat > .env <<EOF\nDEBUG=0\n{name}=«{pw}»\nEOF",
    "env-append": "echo ⟦'{name}=«{strong}»'¦\"export {name}=«{pw}»\"⟧ >> ⟦~/.bashrc¦.env⟧",
    "env-sed": "sed -i 's/{name}=.*/{name}=«{pw}»/' .env",
    "env-heroku": "heroku config:set {name}=«{pw}» -a shop",
    "env-kubectl": "kubectl ⟦set env deploy/api¦create secret generic db --from-literal=user={user}⟧ ⟦{name}=«{pw}»¦--from-literal={name}=«{pw}»⟧",
    "env-aws": "aws lambda update-function-configuration --function-name f --environment 'Variables={{name}=«{pw}»,TZ=UTC}'",
    "env-gcloud": "gcloud run deploy x --set-env-vars {name}=«{pw}»,TZ=UTC",
    "env-helm": "helm upgrade x ./x --set ⟦auth.password¦postgresql.auth.postgresPassword¦secrets.dbPass⟧=«{pw}» --wait",
    "env-terraform": "terraform apply -var ⟦'db_password=«{strong}»'¦\"master_password=«{pw}»\"¦admin_pass=«{pw}»⟧ -auto-approve",
    "env-hcl": '⟦master_password = "«{strong}»"¦  password          = "«{phrase}»"¦variable "db_pass" {\n  default = "«{pw}»"\n}⟧',
    "env-tap": "{key} : «{pw}»",
    "env-properties": "{key}⟦=¦ = ¦: ¦:¦ ⟧«{pw}»\nserver.port=8080",
    "env-toml": "[database]\nuser = \"{user}\"\n⟦password¦pass¦pwd¦passwd⟧ = ⟦\"«{phrase}»\"¦'«{strong}»'¦'''«{pw}»'''⟧",
    "env-yaml": "database:\n  user: {user}\n  ⟦password¦pass¦pwd¦passwd¦dbPassword⟧: ⟦«{pw}»¦\"«{phrase}»\"¦'«{strong}»'¦>-\n    «{pw}»¦!!str «{pw}»⟧",
    "env-ini": '[client]\nuser={user}\n⟦password¦pass¦passwd⟧⟦=¦ = ⟧⟦«{pw}»¦"«{strong}»"⟧',
    "env-lisp": '(setq ⟦smtp-password¦my/db-pass⟧ "«{pw}»")',
    "env-clojure": '{:user "{user}" ⟦:password¦:db-pass¦:pwd⟧ "«{phrase}»"}',
    "env-ruby-hash": "{ user: '{user}', password: '«{strong}»' } # or :password => '«{pw}»'",
    "env-perl": "my %c = (user => '{user}', ⟦password¦pass¦'passwd'⟧ => '«{phrase}»');",
    "env-go-struct": 'Config{User: "{user}", ⟦Password¦Passwd¦DBPass⟧: "«{pw}»"}',
    "env-cs": 'new NetworkCredential("{user}", "«{pw}»") { Password = "«{strong}»" }',
    "env-kotlin": 'val ⟦dbPassword¦adminPass¦apiSecret⟧: String = "«{pw}»"',
    "env-ts": "const ⟦password¦adminPassword¦dbPass⟧⟦: string¦⟧ = ⟦'«{phrase}»'¦`«{pw}»`⟧;",
    "env-rust": 'let ⟦password¦db_pass⟧ = ⟦"«{pw}»".to_string()¦String::from("«{phrase}»")⟧;',
    "env-pascal": "⟦Password¦DBPass⟧ := '«{pw}»';",
    "env-kwargs": "connect(host='{host}', user='{user}', ⟦password¦passwd¦pwd⟧=⟦'«{phrase}»'¦\"«{strong}»\"¦r'«{pw}»'¦b'«{pw}»'¦f\"«{pw}»\"⟧, port=3306)",
    "env-repr": "Settings(host='{host}', password='«{phrase}»', debug=False)",
    "env-secretstr": "SecretStr(value='«{pw}»') password=SecretStr('«{pw}»')",
    "env-dict-log": "config: {'user': '{user}', '⟦password¦pass¦db_password⟧': '«{strong}»', 'port': 3306}",
    "env-go-map": "map[host:{host} password:«{pw}» user:{user}]",
    "env-ruby-inspect": '#<Config user="{user}", password="«{phrase}»">',
    "env-tuple": "[('user', '{user}'), ('password', '«{strong}»')]",
    "env-multiline": "password:\n⟦  ¦⟧«{pw}»\nuser: {user}",
    "env-bold": "**⟦Password¦Passwort¦Admin password⟧:** ⟦`«{pw}»`¦«{pw}»⟧",
    "env-table": "| user | ⟦password¦Passwort¦pwd⟧ |\n|---|---|\n| {user} | «{pw}» |",
    "env-table-rows": "| ⟦Password¦Login password¦Kennwort⟧ | «{pw}» |",
    "env-csv": "user,⟦password¦passwd¦pass⟧,role\n{user},«{pw}»,admin",
    "env-tsv": "login\tpassword\n{user}\t«{pw}»",
    # clients of databases
    "mysql-p": "⟦mysql¦mysqldump¦mysqladmin¦mariadb¦mysqlimport⟧ -u⟦ ¦⟧{user} -p⟦«{pw}»¦'«{strong}»'¦\"«{strong}»\"⟧ ⟦-h {host} shop¦shop < dump.sql¦-e 'show tables'⟧",
    "mysql-p-first": "mysql -p«{pw}» -u root -h {host}",
    "mysql-p-argv": {"cmd": ["mysql", "-u", "{user}", "-p«{pw}»", "shop"]},
    "mysql-long": "mysql --user={user} --password=⟦«{pw}»¦'«{strong}»'⟧ --host={host}",
    "mysql-docker": "docker exec -i db mysql -uroot -p«{pw}» shop",
    "psql-uri": "psql ⟦'postgresql://{user}:«{pw}»@{host}/shop'¦postgres://{user}:«{pw}»@{host}:5432/shop¦\"host={host} user={user} password=«{pw}» dbname=shop\"¦\"host={host} password='«{phrase}»'\"⟧",
    "mongo-p": "⟦mongosh¦mongo¦mongodump¦mongorestore⟧ --host {host} -u {user} -p ⟦«{pw}»¦'«{strong}»'⟧ --authenticationDatabase admin",
    "redis-a": "redis-cli -h {host} ⟦-a «{pw}»¦--pass «{pw}»¦-a '«{strong}»'⟧ ⟦ping¦info⟧",
    "redis-auth": '⟦AUTH «{pw}»¦AUTH default «{pw}»¦auth "«{strong}»"¦CONFIG SET requirepass «{pw}»¦requirepass «{pw}»¦masterauth «{pw}»⟧',
    "sqlcmd": "sqlcmd -S {host} -U sa -P ⟦«{pw}»¦'«{strong}»'⟧ -Q 'select 1'",
    "sqlplus": 'sqlplus {user}/⟦«{pw}»¦\\"«{pw}»\\"⟧@//{host}:1521/ORCL',
    "ldap-w": "⟦ldapsearch¦ldapadd¦ldapmodify⟧ -x -D cn=admin,dc=acme -w ⟦«{pw}»¦'«{strong}»'⟧ -b dc=acme",
    "sshpass": "sshpass -p ⟦«{pw}»¦'«{strong}»'⟧ ssh {user}@{host} uptime",
    "smb": "smbclient //{host}/share -U ⟦{user}%«{pw}»¦'ACME\\{user}%«{pw}»'⟧",
    "mount": "mount -t cifs //{host}/s /mnt -o ⟦username={user},password=«{pw}»,vers=3.0¦user={user},pass=«{pw}»⟧",
    "chpasswd": "echo ⟦'{user}:«{pw}»'¦\"{user}:«{pw}»\"¦{user}:«{pw}»⟧ | ⟦sudo ¦⟧chpasswd",
    "sudo-s": "echo ⟦'«{strong}»'¦«{pw}»¦\"«{pw}»\"⟧ | sudo -S ⟦apt update¦systemctl restart x⟧",
    "passwd-stdin": "echo «{pw}» | ⟦passwd --stdin {user}¦docker login -u {user} --password-stdin {host}¦gh auth login --with-token¦cryptsetup open /dev/sdb x⟧",
    "openssl": "openssl ⟦enc -aes-256-cbc -k «{pw}» -in a -out b¦pkcs12 -in a.p12 -passin pass:«{pw}» -nodes¦rsa -in k.pem -passin 'pass:«{strong}»'⟧",
    "zip": "⟦zip -P «{pw}» a.zip b¦unzip -P '«{pw}»' a.zip¦7z x -p«{pw}» a.7z¦gpg --batch --passphrase «{pw}» -d a.gpg⟧",
    "keytool": "keytool -list -keystore a.jks ⟦-storepass «{pw}»¦-storepass '«{strong}»' -keypass «{pw}»⟧",
    "htpasswd": "htpasswd -b⟦c¦⟧ .htpasswd {user} «{pw}»",
    "net-user": "net user {user} «{pw}» /add",
    "useradd": "useradd -m -p ⟦'«{pw}»'¦$(openssl passwd -1 «{pw}»)⟧ {user}",
    "az-login": "az login --service-principal -u {h8}-{h4}-{h4}-{h4}-{h12} -p ⟦«{n3}8Q~{w34}»¦'«{pw}»'⟧ --tenant acme.example",
    "lftp": "lftp -u {user},⟦«{pw}»¦'«{strong}»'⟧ sftp://{host}",
    "rsync": "RSYNC_PASSWORD=«{pw}» rsync -a {user}@{host}::x .",
    "nmcli": "nmcli dev wifi connect Lab password ⟦«{pw}»¦'«{phrase}»'⟧",
    "wpa": 'network={\n  ssid="Lab"\n  psk="«{phrase}»"\n}',
    "expect": 'expect "assword:"\nsend "«{pw}»\\r"',
    "prompted": "⟦Password for {user}@{host}:¦Enter password:¦[sudo] password for {user}:¦Enter passphrase for key '/root/.ssh/id':¦Password:⟧ «{pw}»",
    # curl and friends
    "curl-u": "curl ⟦-s ¦-sS -X POST ¦-k ¦⟧⟦-u¦--user¦--proxy-user⟧ ⟦{user}:«{pw}»¦'{user}:«{strong}»'¦\"{user}:«{strong}»\"⟧ https://{host}/api",
    "curl-u-after": "curl https://{host}/api/v1/items -o out.json ⟦-u {user}:«{pw}»¦-u{user}:«{pw}»¦--user={user}:«{pw}»⟧",
    "curl-u-key": "curl https://api.stripe.example/v1/charges -u «{n32}»: -d amount=100",
    "curl-argv": {"args": ["curl", "-s", "⟦-u¦--user⟧", "{user}:«{strong}»", "https://{host}/x"]},
    "curl-header": "curl -H ⟦'Authorization: Bearer «{tok}»'¦\"X-Api-Key: «{tok}»\"¦\"PRIVATE-TOKEN: «{w20}»\"¦'X-Auth-Token: «{tok}»'¦\"Authorization: token «{h40}»\"⟧ https://{host}/x",
    "curl-data": "curl -d ⟦'username={user}&password=«{pw}»'¦'{\"user\":\"{user}\",\"password\":\"«{phrase}»\"}'¦password=«{pw}»⟧ https://{host}/login",
    "curl-form": "curl ⟦-F¦--form⟧ ⟦password=«{pw}»¦'secret=«{strong}»'⟧ -F file=@a.txt https://{host}/up",
    "curl-split": "curl -X POST \\\n  -u {user}:«{pw}» \\\n  https://{host}/x",
    "wget": "wget ⟦--user={user} --password=«{pw}»¦--http-user={user} --http-passwd='«{strong}»'¦--user {user} --password '«{phrase}»'⟧ https://{host}/x",
    "httpie": "http ⟦-a {user}:«{pw}» GET https://{host}/x¦POST {host}/login user={user} password=«{pw}»¦--auth={user}:«{pw}» {host}⟧",
    "requests-auth": "requests.get(url, ⟦auth=('{user}', '«{strong}»')¦auth=(\"{user}\", \"«{phrase}»\")¦auth=HTTPBasicAuth('{user}', '«{pw}»')⟧)",
    # flags and lists of arguments
    "flag-space": "⟦./deploy¦acme-cli login¦python sync.py¦rails db⟧ --user {user} --{flag} ⟦«{pw}»¦'«{phrase}»'¦\"«{strong}»\"⟧ ⟦--verbose¦-y¦up⟧",
    "flag-equals": "⟦./deploy¦acme login¦vault write x⟧ --{flag}=⟦«{pw}»¦'«{phrase}»'¦\"«{strong}»\"⟧ --region eu",
    "flag-single": "⟦java Tool¦acme.exe¦Connect-Acme⟧ ⟦-Password¦-password¦-passwd¦-Pwd⟧ ⟦«{pw}»¦'«{strong}»'⟧ -Verbose",
    "flag-slash": "tool.exe /user:{user} ⟦/password:«{pw}»¦/pass:«{pw}»¦/p:«{pw}»⟧ /quiet",
    "flag-end": "acme login {host} --{flag} «{pw}»",
    "argv": {"argv": ["acme", "login", "--user", "{user}", "--{flag}", "«{strong}»", "--force"]},
    "argv-equals": {"cmd": ["acme", "--{flag}=«{pw}»", "up"]},
    "argv-python": "subprocess.run(['acme', '--{flag}', '«{phrase}»', '-v'])",
    "argv-yaml": "args:\n  - --user\n  - {user}\n  - --{flag}\n  - «{pw}»\n",
    "argv-exec": 'CMD ["acme", "--{flag}", "«{pw}»"]',
    "argv-text": {"arguments": '["login", "--{flag}", "«{strong}»"]'},
    "argv-go": 'exec.Command("acme", "--{flag}", "«{pw}»")',
    "argv-comma": "Running: acme, login, --{flag}, «{pw}», --force",
    "ps-list": "{user}  811  0.0  0.1 acme --db {host} --{flag} «{pw}»",
    "flag-short-list": {"args": ["mongosh", "-u", "{user}", "-p", "«{pw}»"]},
    # netrc and the like
    "netrc": "machine {host} login {user} password ⟦«{pw}»¦«{strong}»⟧",
    "netrc-lines": "machine {host}\n⟦  ¦\t¦⟧login {user}\n⟦  ¦\t¦⟧password «{strong}»\n",
    "netrc-echo": "echo 'machine {host} login {user} password «{pw}»' > ~/.netrc",
    "netrc-order": "default password «{pw}» login {user}",
    "netrc-account": "machine {host} account x login {user}\npassword «{strong}» macdef init",
    "pgpass": "{host}:5432:shop:{user}:«{pw}»",
    "pgpass-echo": 'echo "{host}:5432:*:{user}:«{pw}»" > ~/.pgpass && chmod 600 ~/.pgpass',
    "git-credentials": "https://{user}:«{pw}»@{host}\nhttps://x-access-token:«{n36}»@{host}",
    "docker-config": '{"auths": {"{host}": {"auth": "«{b30}==»"}}}',
    "npmrc": '//{host}/:⟦_authToken=«{tok}»¦_password=«{b22}==»¦_auth="«{b22}==»"⟧',
    "pypirc": "[pypi]\nusername = __token__\npassword = «{w60}»",
    "htaccess-cred": "login: {user} / «{pw}»",
    # Kubernetes
    "k8s-yaml": "env:\n- name: {name}\n  value: ⟦«{pw}»¦\"«{strong}»\"¦'«{phrase}»'⟧\n- name: TZ\n  value: UTC",
    "k8s-yaml-swapped": "env:\n- value: «{pw}»\n  name: {name}",
    "k8s-flow": "env: [{name: {name}, value: «{pw}»}, {name: TZ, value: UTC}]",
    "k8s-json": {"spec": {"containers": [{"env": [{"name": "{name}", "value": "«{strong}»"}, {"name": "A", "value": "b"}]}]}},
    "k8s-text": '{"env":[{"name":"{name}","value":"«{pw}»"}]}',
    "k8s-describe": "    Environment:\n      {name}:  «{pw}»\n      TZ:  UTC\n    Mounts:",
    "k8s-string-data": 'kind: Secret\nstringData:\n  ⟦password¦db-pass¦admin-password⟧: ⟦«{pw}»¦"«{phrase}»"⟧',
    "k8s-patch": "kubectl patch secret x -p '{\"stringData\":{\"⟦password¦token⟧\":\"«{pw}»\"}}'",
    "ecs": {"containerDefinitions": [{"environment": [{"name": "{name}", "value": "«{pw}»"}]}]},
    "parameter-store": {"Name": "/prod/⟦db_password¦api-token¦smtp/pass⟧", "Type": "SecureString", "Value": "«{pw}»"},
    "parameter-put": "aws ssm put-parameter --name /prod/db/password --value ⟦'«{strong}»'¦«{pw}»⟧ --type SecureString",
    "cloudformation": {"Parameters": [{"ParameterKey": "DBPassword", "ParameterValue": "«{pw}»"}]},
    "appsettings": {"appSettings": [{"key": "SmtpPassword", "value": "«{phrase}»"}]},
    "tf-state": {"type": "aws_db_instance", "values": {"username": "{user}", "password": "«{strong}»"}},
    # headers
    "auth-token": "Authorization: ⟦token¦Token¦Bearer¦bearer¦ApiKey¦Key¦OAuth¦Api-Key¦SSWS¦GenieKey⟧ «{tok}»",
    "auth-token-eq": 'Authorization: Token token=⟦"«{tok}»"¦«{tok}»⟧',
    "auth-bare": "⟦Authorization¦authorization¦AUTHORIZATION⟧: «{tok}»",
    "auth-json": {"headers": {"⟦Authorization¦authorization⟧": "⟦token¦Token¦Bearer¦Basic¦ApiKey⟧ «{n40}»", "Accept": "*/*"}},
    "auth-proxy": 'Proxy-Authorization: ⟦Bearer «{tok}»¦Digest username="{user}", response="«{h32}»"⟧',
    "auth-quoted": "headers = {⟦'Authorization': 'token «{h40}»'¦\"authorization\": \"Bearer «{tok}»\"¦'Authorization': 'Token ' + '«{h40}»'⟧}",
    "auth-list": {"headers": [["Authorization", "token «{h40}»"], ["Accept", "*/*"]]},
    "auth-pairs": {"headers": [{"name": "⟦Authorization¦X-Api-Key¦Cookie⟧", "value": "⟦token ¦⟧«{n40}»"}]},
    "auth-set": "⟦req.setRequestHeader('Authorization', 'token «{h40}»')¦req.Header.Set(\"Authorization\", \"Bearer «{tok}»\")¦client.headers['Authorization'] = 'Token «{h40}»'⟧",
    "auth-verbose": "> GET /x HTTP/1.1\n> Host: {host}\n> Authorization: token «{h40}»\n>",
    "auth-http2": "[HTTP/2] [1] [authorization: Bearer «{tok}»]",
    "auth-go": "map[Accept:[*/*] Authorization:[token «{h40}»]]",
    "header-key": "⟦X-API-Key¦x-api-key¦X-Auth-Token¦Api-Key¦X-Vault-Token¦X-Access-Token¦apikey¦X-Amz-Security-Token⟧: «{tok}»",
    "cookie": "⟦Cookie¦Set-Cookie⟧: ⟦sessionid¦connect.sid¦JSESSIONID¦PHPSESSID¦auth_token⟧=«{n32}»; Path=/; HttpOnly",
    # XML
    "xml": "<⟦user¦username⟧>{user}</⟦user¦username⟧><⟦password>«{strong}»</password¦Password>«{pw}»</Password¦passwd>«{pw}»</passwd¦dbPassword>«{phrase}»</dbPassword¦ns:password>«{pw}»</ns:password¦pwd>«{pw}»</pwd⟧>",
    "xml-lines": "<credentials>\n  <login>{user}</login>\n  <password>\n    «{pw}»\n  </password>\n</credentials>",
    "xml-attribute": "<connection user=\"{user}\" ⟦password=\"«{phrase}»\"¦pwd='«{strong}»'¦Password=\"«{pw}»\"⟧ />",
    "xml-typed": '<wsse:Password Type="http://docs.example/wss#PasswordText">«{strong}»</wsse:Password>',
    "xml-cdata": "<password><![CDATA[«{strong}»]]></password>",
    "xml-property": '<property name="⟦password¦javax.persistence.jdbc.password¦hibernate.connection.password⟧" value="«{strong}»"/>',
    "xml-property-text": "<property>\n<name>javax.jdo.option.ConnectionPassword</name>\n<value>«{pw}»</value>\n</property>",
    "xml-entry": '<entry key="⟦db.password¦smtpPass⟧">«{phrase}»</entry>',
    "xml-add": '<add key="⟦AdminPassword¦ApiSecret⟧" value="«{strong}»" />',
    "xml-param": '<⟦param¦init-param¦string⟧ name="password">«{pw}»</⟦param¦init-param¦string⟧>',
    "plist": "<key>⟦Password¦adminPass⟧</key>\n⟦\t¦⟧<string>«{phrase}»</string>",
    "soap": '<soap:Body><Login><UserName>{user}</UserName><Password xsi:type="xsd:string">«{pw}»</Password></Login></soap:Body>',
    "xml-escaped": "&lt;password&gt;«{pw}»&lt;/password&gt;",
    # SQL
    "identified": "⟦CREATE USER¦ALTER USER¦create user if not exists⟧ '{user}'@'⟦%¦localhost⟧' ⟦IDENTIFIED BY¦identified by¦IDENTIFIED WITH mysql_native_password BY¦IDENTIFIED BY PASSWORD⟧ '«{strong}»';",
    "identified-double": 'GRANT ALL ON *.* TO {user} IDENTIFIED BY "«{phrase}»" WITH GRANT OPTION;',
    "identified-oracle": '⟦CREATE USER {user} IDENTIFIED BY «{n14}» DEFAULT TABLESPACE users¦ALTER USER {user} IDENTIFIED BY "«{strong}»" ACCOUNT UNLOCK¦ALTER USER {user} IDENTIFIED BY «{n12}» REPLACE «{n12}»⟧;',
    "identified-line": "CREATE USER {user}\n  IDENTIFIED BY '«{pw}»'\n  PASSWORD EXPIRE NEVER;",
    "identified-clickhouse": "CREATE USER {user} IDENTIFIED WITH ⟦sha256_password¦plaintext_password⟧ BY '«{pw}»'",
    "identified-python": "cursor.execute(\"CREATE USER '{user}' IDENTIFIED BY '«{pw}»'\")",
    "sql-role": "⟦CREATE ROLE¦ALTER ROLE¦CREATE USER¦ALTER USER⟧ {user} ⟦WITH LOGIN PASSWORD¦WITH PASSWORD¦PASSWORD¦WITH ENCRYPTED PASSWORD⟧ '«{strong}»';",
    "sql-login": "CREATE LOGIN {user} WITH PASSWORD = ⟦N'«{strong}»'¦'«{phrase}»'⟧, CHECK_POLICY = OFF;",
    "sql-set": "SET PASSWORD FOR '{user}'@'%' = ⟦PASSWORD('«{pw}»')¦'«{strong}»'⟧;",
    "sql-update": "UPDATE users SET ⟦password¦passwd¦pwd⟧ = ⟦'«{phrase}»'¦crypt('«{pw}»', gen_salt('bf'))¦MD5('«{pw}»')⟧ WHERE login = '{user}';",
    "sql-insert": "INSERT INTO users (login, ⟦password¦pass¦passwd⟧, role) VALUES ('{user}', '«{strong}»', 'admin');",
    "sql-where": "SELECT id FROM users WHERE login='{user}' AND ⟦password¦pass⟧='«{phrase}»'",
    "sql-dblink": "dblink('host={host} user={user} password=«{pw}»', 'select 1')",
    "sql-fdw": "CREATE USER MAPPING FOR x SERVER y OPTIONS (user '{user}', password '«{strong}»');",
    "sql-copy": "COPY t FROM 's3://b/k' CREDENTIALS 'aws_access_key_id=AKIA{f16};aws_secret_access_key=«{b40}»';",
    # URLs
    "url": "⟦postgres¦mysql+pymysql¦redis¦amqp¦mongodb+srv¦https¦ftp¦smtps¦ssh⟧://{user}:«{pw}»@{host}⟦/shop¦:5432/x?ssl=1¦⟧",
    "url-slash": "⟦postgresql¦mysql¦amqp¦mongodb¦https⟧://{user}:«{n4}/{n6}»@{host}⟦/shop¦:5432/shop¦⟧",
    "url-slashes": "DATABASE_URL=⟦postgres¦mysql2⟧://{user}:«{n3}/{n3}/{n4}»@{host}:5432/shop",
    "url-signs": "⟦postgres¦amqp¦https⟧://{user}:«{n4}⟦#¦?¦@¦:¦+¦!¦&¦=¦%2F⟧{n5}»@{host}/shop",
    "url-user-only": "redis://:«{pw}»@{host}:6379/0",
    "url-token-only": "git clone https://«{n40}»@{host}/acme/shop.git",
    "url-oauth": "git remote add origin https://⟦oauth2¦x-token-auth¦gitlab-ci-token¦{user}⟧:«{w24}»@{host}/acme/shop.git",
    "url-jdbc": "jdbc:⟦mysql://{host}/shop?user={user}&password=«{pw}»¦sqlserver://{host};user={user};password=«{strong}»;encrypt=true¦oracle:thin:{user}/«{n12}»@{host}:1521:ORCL¦postgresql://{host}/x?password=«{pw}»&user={user}⟧",
    "url-query": "GET /login?user={user}&⟦password¦passwd¦pwd¦pass¦token¦api_key¦access_token¦secret¦sig⟧=«{n24}»&x=1 HTTP/1.1",
    "dsn": "⟦Server={host};Database=shop;User Id={user};Password=«{strong}»;¦Data Source={host};UID={user};PWD=«{pw}»¦Driver={ODBC};Server={host};Uid={user};Pwd={«{n12}»};¦AccountName=acme;AccountKey=«{b86}==»;EndpointSuffix=x¦Endpoint=sb://{host}/;SharedAccessKeyName=Root;SharedAccessKey=«{b43}=»⟧",
    # quoted with spaces
    "quoted": "⟦password¦passphrase¦pwd¦Passwort⟧⟦: ¦=¦ = ¦ is ¦ ⟧⟦\"«{phrase}»\"¦'«{phrase}»'¦“«{phrase}»”⟧",
    "quoted-json": {"⟦password¦passphrase¦db_password¦adminPwd⟧": "«{phrase}»", "user": "{user}"},
    "quoted-deep": {"config": {"smtp": {"auth": {"user": "{user}", "⟦pass¦password¦pwd⟧": "«{phrase}»"}}}},
    "quoted-escaped": '{\\"user\\": \\"{user}\\", \\"password\\": \\"«{phrase}»\\"}',
    "quoted-guillemets": "⟦mot de passe : ‹ «{phrase}» ›¦Passwort: „«{phrase}»“¦Kennwort lautet ‚«{phrase}»‘¦пароль: “«{phrase}»”⟧",
    # sentences
    "en-is": "⟦The password is¦my password is¦the pw is¦password is¦The password for {user} is¦the root password on {host} is¦The new password is now¦Her password was¦our wifi password is¦The passphrase is¦current password is still⟧ ⟦«{pw}»¦«{pw}».¦\"«{phrase}»\"¦'«{strong}»'¦`«{pw}»`⟧",
    "en-set": "⟦I set the password to¦please change my password to¦reset the password to¦use the password¦log in with password¦sign in as {user} with password¦I changed it, the password is now¦password should be¦Use {user} and password⟧ ⟦«{pw}»¦'«{strong}»'¦«{pw}», thanks⟧",
    "en-login": "⟦login is {user} and the password is «{pw}»¦username {user}, password «{pw}»¦user: {user} pass: «{pw}»¦creds: {user} / «{pw}»¦credentials are {user}:«{pw}»¦You can log in as {user} using «{pw}» as the password¦«{pw}» is the password for {user}¦{user}'s password: «{pw}»⟧",
    "en-key": "⟦My API key is¦the token is¦here's the api key:¦secret key ->¦Use this access token:¦The client secret:¦auth token =¦the API token you need is⟧ «{tok}»",
    "en-pin": "⟦The PIN is¦my pin:¦PIN code¦the door code is¦one-time code:¦Your verification code is¦OTP:⟧ «{d6}»",
    "en-question": "Why does it say wrong ⟦password¦credentials⟧? I typed «{strong}» and my user is {user}",
    "de-ist": '⟦Das Passwort ist¦Mein Passwort lautet¦Das Kennwort ist¦das PW ist¦Passwort für {user} ist¦Das neue Kennwort lautet¦Das Passwort für den Server {host} ist¦Der Zugangscode ist¦Die Passphrase lautet¦Unser WLAN-Passwort ist¦Das Login-Passwort war⟧ ⟦«{pw}»¦«{pw}».¦"«{phrase}»"¦„«{strong}»“⟧',
    "de-setzen": "⟦Bitte ändere mein Passwort auf¦Ich habe das Kennwort auf¦Melde dich mit Passwort¦Benutzer {user}, Passwort¦Zugangsdaten: {user} /¦Login {user} mit dem Kennwort¦Setze das Passwort bitte auf¦PW:¦Kennwort:¦Zugang: {user}, PW⟧ «{pw}»⟦ gesetzt¦ an¦⟧",
    "de-schluessel": "⟦Der API-Schlüssel ist¦Mein Zugriffstoken lautet¦Das Token ist¦Geheimer Schlüssel:¦Der Schlüssel lautet⟧ «{tok}»",
    # arguments that are named or selected as password fields
    "arg-name": {"⟦password¦passwd¦pwd¦new_password¦confirmPassword¦pass¦passphrase¦userPassword¦currentPassword¦login_password¦admin_pw¦pin_code⟧": "«{pw}»"},
    "arg-weak": {"username": "{user}", "password": "⟦«hunter{d1}»¦«letmein{d2}»¦«{a6}{d1}»¦«Summer20{d2}!»¦«{d8}»⟧"},
    "arg-selector": {"selector": "⟦input[name=password]¦#password¦#login-password¦input[type='password']¦[data-testid=password-input]¦//input[@id='passwd']¦css=.pwd-field⟧", "⟦text¦value¦content¦keys⟧": "«{pw}»"},
    "arg-selector-later": {"text": "«{strong}»", "action": "type", "element": "⟦Password field¦Passwort-Feld¦Password textbox¦Confirm password input⟧"},
    "arg-field": {"field": "⟦password¦Password¦passwd¦kennwort⟧", "value": "«{phrase}»"},
    "arg-fields": {"fields": [{"name": "email", "value": "x"}, {"name": "⟦password¦Password¦pwd⟧", "type": "textbox", "value": "«{pw}»"}]},
    "arg-ref": {"element": "⟦Password input¦password textbox⟧", "ref": "e17", "text": "«{strong}»", "submit": True},
    "arg-label": {"label": "⟦Password¦Passwort¦Your password¦API key⟧", "text": "«{pw}»"},
    "arg-locator": "await page.⟦locator('#password').fill('«{pw}»')¦fill('input[name=\"password\"]', '«{strong}»')¦getByLabel('Password').fill('«{phrase}»')¦type('#passwd', '«{pw}»')¦getByPlaceholder('Password').type('«{pw}»')⟧",
    "arg-selenium": "driver.find_element(By.⟦ID, 'password'¦NAME, \"passwd\"¦CSS_SELECTOR, 'input[type=password]'⟧).send_keys(⟦'«{pw}»'¦\"«{phrase}»\"⟧)",
    "arg-dom": "document.⟦getElementById('password')¦querySelector('#pwd')⟧.value = '«{strong}»'",
    "arg-html": "<input ⟦type=\"password\" name=\"p\" value=\"«{strong}»\"¦name='password' value='«{pw}»'¦value=\"«{pw}»\" type=\"password\"⟧>",
    "arg-sql-params": {"query": "UPDATE users SET password = ? WHERE id = ?", "params": ["«{pw}»", 7]},
    "arg-nested": {"arguments": '{"action": "login", "params": {"user": "{user}", "password": "«{strong}»"}}'},
    "arg-nested-twice": {"body": '{"data": "{\\"user\\": \\"{user}\\", \\"password\\": \\"«{pw}»\\"}"}'},
    "arg-set": {"op": "⟦set¦replace⟧", "path": "/⟦password¦spec/adminPassword¦users/7/pwd⟧", "value": "«{phrase}»"},
    "arg-key-value": {"key": "⟦db_password¦SMTP_PASS¦api_secret⟧", "value": "«{pw}»"},
    "arg-list": {"inputs": [["username", "{user}"], ["password", "«{phrase}»"]]},
    "arg-credentials": {"⟦credentials¦auth¦login⟧": {"⟦user¦username⟧": "{user}", "⟦pass¦secret¦password¦key⟧": "«{pw}»"}},
    "arg-credentials-list": {"⟦auth¦basic_auth¦credentials⟧": ["{user}", "«{strong}»"]},
    "arg-credential-text": {"⟦auth¦basicAuth¦credentials¦userpwd⟧": "{user}:«{pw}»"},
    "arg-yaml-text": {"file": "values.yaml", "content": "db:\n  user: {user}\n  password: «{strong}»\n"},
    "arg-camel": {"⟦clientSecret¦apiKey¦accessToken¦refreshToken¦privateKey¦signingKey¦webhookSecret¦sessionToken⟧": "«{tok}»"},
}  # fmt: skip

MARKS: dict[str, Any] = {
    "aws-session": '⟦aws_session_token = ¦AWS_SESSION_TOKEN=¦"SessionToken": "¦x-amz-security-token: ¦--session-token ¦⟧«⟦IQoJb3JpZ2luX2Vj¦FwoGZXIvYXdzE¦IQoJb3JpZ2luX2VjE⟧{b200}⟦=¦⟧»',
    "aws-secret": '⟦aws_secret_access_key = ¦AWS_SECRET_ACCESS_KEY=¦"SecretAccessKey": "¦secretKey: ⟧«{b40}»',
    "aws-temporary": "⟦export AWS_ACCESS_KEY_ID=¦key ¦⟧«⟦ASIA¦AKIA⟧{f16}»",
    "gcp-session": "⟦Bearer ¦token: ¦⟧«ya29.⟦a0¦c.c0¦⟧{w140}»",
    "azure-access": "⟦Bearer ¦accessToken: ¦⟧«eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsIng1dCI6I{w20}.eyJhdWQiOiJodHRwczovL21hbmFnZW1lbnQ{w60}.{w80}»",
    "mailgun": "⟦MAILGUN_API_KEY=¦api:¦mailgun key ¦⟧«key-{h32}»",
    "mailgun-new": "⟦MAILGUN_API_KEY=¦Mailgun key: ¦curl -u api:¦mailgun.api_key = ⟧«{h32}-{h8}-{h8}»",
    "mailgun-bare": "mailgun gives 401 for ⟦«key-{h32}»¦«{h32}-{h8}-{h8}»⟧",
    "azure-devops": "⟦AZURE_DEVOPS_EXT_PAT=¦ADO PAT: ¦azure devops pat ¦SYSTEM_ACCESSTOKEN=¦personal access token ¦az devops login # PAT ⟧«{l52}»",
    "azure-devops-new": "⟦pat ¦AZDO_PERSONAL_ACCESS_TOKEN=¦⟧«{n52}JQQJ99{n2}ACAAAAA{n11}AZDO{n4}»",
    "azure-devops-url": "git clone https://⟦acme¦pat¦anything⟧:«{l52}»@dev.azure.com/acme/shop/_git/shop",
    "azure-devops-basic": "curl -u :«{l52}» https://dev.azure.com/acme/_apis/projects",
    "ethereum": '⟦PRIVATE_KEY=¦private key: ¦"privateKey": "¦wallet key ¦ETH_PRIVATE_KEY=0x¦my eth private key is ¦deployer pk: ¦accounts: ["¦--private-key ¦DEPLOYER_KEY=⟧«0x{h64}»',
    "ethereum-plain": "⟦ETH_PRIVATE_KEY=¦private key ¦ethereum key: ¦secret key (hex): ⟧«{h64}»",
    "ethereum-code": "⟦new ethers.Wallet('«0x{h64}»', provider)¦Account.from_key(\"«0x{h64}»\")¦web3.eth.accounts.privateKeyToAccount('«{h64}»')¦cast send 0x{h40} --private-key «0x{h64}»⟧",
    "github": "⟦git clone https://x:¦GH_TOKEN=¦using ¦⟧«⟦ghp_{n36}¦gho_{n36}¦ghs_{n36}¦github_pat_{n22}_{n59}⟧»",
    "slack": "«⟦xoxb-{d12}-{d12}-{n24}¦xoxp-{d12}-{d12}-{d12}-{h32}¦xapp-1-A{U10}-{d13}-{h64}⟧»",
    "openai": "«⟦sk-{n48}¦sk-proj-{w120}¦sk-ant-api03-{w93}AA¦sk-or-v1-{h64}⟧»",
    "stripe": "«⟦sk_live_{n24}¦rk_live_{n24}¦whsec_{n32}¦sk_test_{n24}⟧»",
    "google": "«⟦AIza{w35}¦GOCSPX-{w28}¦1//0{w60}⟧»",
    "telegram": "https://api.telegram.example/bot«{d10}:AA{w33}»/sendMessage",
    "private-key": "-----BEGIN ⟦RSA ¦EC ¦OPENSSH ¦⟧PRIVATE KEY-----\n«{b64}\n{b64}\n{b40}==»\n-----END ⟦RSA ¦EC ¦OPENSSH ¦⟧PRIVATE KEY-----",
    "jwt": "⟦token ¦Cookie: jwt=¦⟧«eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI{w40}.{w43}»",
    "vault": "«hvs.{w24}⟦{w70}¦⟧»",
    "twilio": "TWILIO_AUTH_TOKEN=«{h32}»",
    "datadog": "⟦DD_API_KEY=«{h32}»¦DD-APPLICATION-KEY: «{h40}»⟧",
    "azure-storage": "⟦AccountKey=¦--account-key ¦storage key: ⟧«{b86}==»",
    "azure-client": "⟦AZURE_CLIENT_SECRET=¦client secret ¦⟧«{n3}8Q~{w34}»",
    "sas": "?sv=2023-11-03&ss=b&srt=co&sp=rl&se=2026-12-31T00:00:00Z&sig=«{n42}%3D»",
}  # fmt: skip


def _of(name: str, group: str, form: Any) -> Family:
    return Family(f"enumerated {name}", group, lambda rng: varied(form, rng))


FORMS = (
    *(_of(name, "place", form) for name, form in PLACES.items()),
    *(_of(f"mark {name}", "vendor", form) for name, form in MARKS.items()),
)
