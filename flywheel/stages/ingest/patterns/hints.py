"""What all payloads are searched for first: digits, the marks of services' keys, words that announce something.

polars does it, in one pass for all kinds that share a hint; only where it finds something the kinds' triggers are
looked for.
"""

from __future__ import annotations

# Words that announce, in small letters: parts of names, and whole words. A login is followed by a user, then a password.
PARTS = {
    "password": r"passw|passphrase|passcode|passkey|storepass|keypass|kennwort|contraseñ|contrasen|mots? de passe|senha|wachtwoord"
    r"|hasł|haslo|lösenord|парол|密码|密碼|パスワード|비밀번호|securestring|decrypt|encrypt|unprotect|tacacs|snmp",
    "login": r"credential|zugangsdaten|anmeld|getconnection|createuser|database\(",
    "key": r"secret|token|(?:api|access|private|auth)[ _-]?key|jwt|hmac|bearer|authoriz|clave|schlüssel|schluessel|freischalt|lizenz",
}
WHOLE = {
    "password": r"pw|pass|psk|mdp|rp|kdf|crypt|xauth|radius|community|wlan|wi-?fi",
    "login": r"log[ _-]?[io]n|sign[ _-]?in|auth|authenticate|creds|connect|create_user",
    "key": r"key|pat|clé",
}
FLAGS = "[kpPwNaAX]|pw|pass"
NEAR = (
    rf"(?i:{'|'.join(PARTS.values())}|[^a-z0-9](?:{'|'.join(WHOLE.values())})[^a-z0-9])".replace("token", "token[^s_]")
    + "| -(?:[kPwNAX]|pw)[ =]"
)

DIGITS = r"[0-9](?:[ .()/:-]{0,3}[0-9]){5}"
KEYED = r"(?:key|sk|rk|pat|tok|token|secret|live|production|sdk|oauth|test|prod|sandbox|dev)[_-][A-Za-z_-]*[0-9]"
MARKS = (
    r"sk[-_]|k_live_|k_test_|gh[oprsu]_|github_pat|gl[a-z]+-|A[KSBC][IC]A|xox|AIza|hf_|npm_|pypi-|SG\.|eyJ|gsk_|xai-|pplx-|r8_|nvapi|tvly|lsv2|fw_|pcsk|e2b_"
    r"|ya29|GOCSPX|1//0|Q~|xapp|hooks\.slack|/webhooks/|whsec_|SK[0-9a-f]|shp[a-z]+_|sq0|xkeysib|dckr|_v1_|dapi|dp\.|hv[sbr]\.|glc_|glsa_|lin_|ntn_|figd_"
    r"|ATATT|sb[ps]_|pscale|NRAK|PMAK|sntry|:AA|AGE-S|IQoJ|F[wQ]oG|AQoD|ABSK|bedrock|AZDO|\+A[SMR]|APIM|ACDb|key[-_][0-9a-f]|-us[0-9]|[0-9a-f]-[0-9a-f]{8}-"
    r"|A3-|ops_|p8e-|pat[A-Z0-9.]|pat[a-z]*[A-Z0-9]|LTAI|AKCp|cmVm|[0-9]:[0-9a-f]|bkua|CCIP|CFPAT|v1\.0|CLOJ|sl\.|duffel|dt0|EZ[AT]K|EAA|FLW|f[om][12]|fio-|sat\."
    r"|HRKU|ico-|_mmk|napi_|nf[pcu]_|API-|sha256~|access-|ph[xcas]_|pn[ub]_|pul-|rdme|re_|rubyg|tk-us|sm_|shippo|sq[aup]_|sgp_|tskey|atlasv1|tfp_|vc[aipkr]_"
    r"|AQVN|t1\.|GR134|api_org|\.[A-Za-z0-9_-]{6,7}\.|[0-9]\||NR[JI]|office\.com|APA91|jina_|SharedA|AccountK|-----B|(?i:bearer|basic) |[?&;](?i:sig|x-|appid|code)|\$[1-7yaps]"
    rf"|{KEYED}|csk-|retool_|api-[0-9a-f]|fc-|cu_|rootly_|semgrep_|waka_|xaat-|zpka_|sess-|cf[aku]t_|ATBB|AVNS_|rpa_|AC[0-9a-f][0-9a-f]|hooks\.|hc[ai]|y[0-3]_|vk1|PuTTY"
)
# Marks are apart: in text full of code one search for marks and words has too many states for the engine, and takes four times as long.
WORDS = (
    rf"@|{NEAR}|"
    r"(?i:assw|passe[^a-z]|[^a-z]code|scode|código|einmalc|geheimzahl|tan: |log in|sign in|t?otp[^a-z]| -u[ =]|-user[ =]| -a | --?auth|crypt\(|hashpw|_hash\(|psk|shared.key|pass[^a-z]|passphrase|passcode|pwd|pswd|pw[^a-z]|kennwort|contrase|senha|wachtwoord|hasł|haslo|парол|密码|密碼|パスワード|비밀번호|mdp|identified|l(?:ü|ue)ssel|secret|token[^s]"
    r"|key[^a-z]|credential|creds|auth[^o]|authoriz|cookie|[^a-z]sas[^a-z]|dsn|:\{(?:plain|clear|s?sha|crypt|md5)|\" +\*|setuser|masterauth|!!str|fernet|connect|<<<|identify |pdo|client\(|btoa|\" +\\\\+\"|\]:[0-9]+ |[^a-z](?:pin|cv[vc]2?)[^a-z]|curl|mysql|mariadb|mycli|ftp[> ]|twine|bcp |hydra|freerdp|winrm|crackmap|nxc |certutil|user(?:add|mod)|adduser|rar "
    r"|login|redis-|ldap|smbclient|sqlcmd|mongo|[^a-z](?:un)?zip |[^a-z]7z|net use|chpasswd|sudo|cryptsetup|openssl|lftp|htpasswd|ipmitool|mosquitto"
    r"|snmp|plink|pscp|psexec|securestring|getconnection|networkcred|rpcclient|rabbitmqctl|wpa_|://[^\"]*:[^\"]*@|:(?:543[0-9]|6432|\*):"
    r"|[\[({<_ ](?:dot|punkt|punto)[\])}>_ ]|[\[({<]\s?(?:at|@|ät)\s?[\])}>]"
    r"|social|ssn|身份证|公民|national|insur|nino|ni number|steuer|idnr|[^a-z]tin[^a-z]|documento|[^a-z](?:dni|nif|nie|nir|cpf|bsn|rrn|dl|pan|itin|ein|mbi|nhs|sin"
    r"|tfn|rfc|aba|rtn)[^a-z]|s[ée]cu|codice|cadastro|aadha|आधार|uidai|burgerservice|sofi|pesel|nummer|マイナンバー|個人番号|my.?number|주민등록|[^a-z]tax|taxpay"
    r"|identi[tf]|personal.?id|citizen|resident|passport|reisepass|passeport|pasaporte|passap|paspoort|护照|パスポート|licen|hrerschein|permis|permanent acc"
    r"|income|medicare|health card|curp|routing|transit n|konto|account|sort.?code"
    r"|st\.-?nr|versicherung|ausweis|perso-nr|fødsel|cpr|henkil|hetu|rodné|rijksreg|contribu|kimlik|снилс|инн|паспорт|身份|個人|마이|주민|c[ée]dula|[^a-z]ird[^a-z]|emirates|teudat"
    r"|[^a-z](?:thai|israeli|voter|id) (?:id|number)|epic no|[^a-z]gst|mykad|เลข|iva[^a-z]|imei|[^a-z]vin[^a-z]|chassis|insurance"
    r"|[^a-z](?:cnpj|cif|rut|cuit|cuil|c\.c|ahv|avs|svnr|sv-nr|rč|oib|tckn|snils|inn|utr|nas|abn|nric|hkid|eid|nip|regon|niss|insz|ppsn?|cf|c\.f|fnr)[^a-z]"
    r"|phone|telef|teléf|téléph|[^a-z](?:tel|tél|fax|sms|cell)[^a-z]|mobil|móv[ei]l|mov[ei]l|handy|durchwahl|celular|whatsapp|msisdn|portable|電話|携帯|手机|电话"
    r"|手機|फ़ोन|फोन|मोबाइल|전화|휴대폰|тел|call (?:me|us|him|her|them|back)|called |ring (?:me|us)|text me|reach|erreichbar|ruf |contact|number is|landline|dial |hotline"
    r"|callback|private|wallet|seed|mnemonic|recovery|eth[^a-z]|ethereum|azure|devops|visualstudio)"
)
