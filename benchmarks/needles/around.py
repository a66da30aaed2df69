"""What is around a needle: the prefix of a logger, prose, quotes of a language, a table, a level of escapes."""

from __future__ import annotations

import json
from collections.abc import Callable

_EACH_LINE = {
    "logger": "2026-11-02T10:14:22.113Z INFO [worker-3] {}",
    "syslog": "Nov  2 10:14:22 web1 deploy[811]: {}",
    "python-log": "2026-11-02 10:14:22,113 - app.setup - DEBUG - {}",
    "logfmt": "10:14:22 level=debug component=setup | {}",
    "actions": "2026-11-02T10:14:22.1139182Z ##[debug]{}",
    "compose": "web-1  | {}",
    "numbered": "    12\t{}",
    "grep": "src/setup/main.cfg:12:{}",
    "grep-context": "12-{}",
    "added": "+{}",
    "removed": "-    {}",
    "quoted": "> {}",
    "twice-quoted": ">> > {}",
    "hash": "# {}",
    "slashes": "  // {}",
    "star": " * {}",
    "trace": "+ {}",
    "indented": "        {}",
    "pod": "[pod/api-7d9f/api] {}",
    "klog": "I1102 10:14:22.113456       1 main.go:88] {}",
    "bullet": "- {}",
    "ordered": "3. {}",
    "gutter": "12 | {}",
    "ansi": "\x1b[32m{}\x1b[0m",
    "debugger": "(Pdb) {}",
}

_WHOLE = {
    "prose-before": "I tried this yesterday and it did not work: {}",
    "prose-after": "{} - any idea why it fails?",
    "prose-around": "ok so what I have is {} and nothing else, please continue",
    "german": "Ich habe es gestern so gemacht: {} Was ist daran falsch?",
    "french": "Voici ce que j'ai essayé : {} (sans succès)",
    "spanish": "Esto es lo que tengo: {} ¿qué hago ahora?",
    "prompt": "root@web1:/srv/app# {}",
    "powershell": "PS C:\\srv> {}",
    "python-prompt": ">>> {}",
    "fence": "```\n{}\n```",
    "backticks": "use `{}` there",
    "details": "<details><summary>log</summary>\n\n{}\n\n</details>",
    "pre": "<pre>{}</pre>",
    "cell": "| step 1 | {} | ok |",
    "html-cell": "<tr><td>1</td><td>{}</td></tr>",
    "cdata": "<note><![CDATA[{}]]></note>",
    "jira": "{code}\n{}\n{code}",
    "yaml-block": "steps:\n  - run: |\n      {}\n    shell: bash",
    "after-and": "cd /srv/app && {}",
    "semicolons": "set -e; {}; echo done",
    "cron": "*/5 * * * * root {}",
    "docker-run": "RUN {}",
    "called-process": "subprocess.CalledProcessError: Command '{}' returned non-zero exit status 1.",
    "exception": 'RuntimeError: setup failed near "{}" (code 17)',
    "stack": 'Traceback (most recent call last):\n  File "/srv/app.py", line 31, in main\n    {}\nValueError: bad',
    "logging-call": 'logger.info("{}")',
    "go-print": 'fmt.Println("{}")',
    "java-comment": "/** example: {} */",
    "ticket": "Subject: setup\nPriority: high\n\n{}\n\nThanks,\nAnna",
    "slack": "<@U024BE7LH> {}",
    "stdout": "[stdout]\n{}\n[exit 0]",
    "thought": "Observation: {}\nThought: that worked.",
    "tag": "<tool_result>{}</tool_result>",
    "comment": "/etc/app.conf # {}",
    "csv-cell": '17,"{}",ok',
}


def _line_by_line(form: str) -> Callable[[str], str]:
    return lambda text: "\n".join(form.replace("{}", line) for line in text.split("\n"))


def _around(form: str) -> Callable[[str], str]:
    return lambda text: form.replace("{}", text)


AROUND: dict[str, Callable[[str], str]] = {
    **{name: _line_by_line(form) for name, form in _EACH_LINE.items()},
    **{name: _around(form) for name, form in _WHOLE.items()},
    "docker-json": lambda text: json.dumps({"log": text + "\n", "stream": "stdout", "time": "2026-11-02T10:14:22.11Z"}),
    "json-line": lambda text: json.dumps({"level": 30, "pid": 811, "hostname": "web1", "msg": text}),
    "json-twice": lambda text: json.dumps({"event": json.dumps({"detail": text})}),
    "json-thrice": lambda text: json.dumps({"a": json.dumps({"b": json.dumps([text])})}),
    "python-dict": lambda text: repr({"ok": True, "output": text}),
    "repr-in-log": lambda text: "INFO result=" + repr(text),
    "cloudwatch": lambda text: "1793614462113 " + json.dumps({"message": text, "logStream": "api/7"}),
    "marked-up": lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;"),
    "windows-lines": lambda text: "out:\r\n" + text.replace("\n", "\r\n") + "\r\n",
    "event-stream": lambda text: "data: " + json.dumps({"delta": {"text": text}}) + "\n\n",
    "escaped-newlines": lambda text: "stderr: " + text.replace("\n", "\\n") + "\\nexit 1",
}
