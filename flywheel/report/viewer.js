// The episode viewer: reads the page's JSON island and shows one episode as a column of steps.
// Log text is hostile, so it only ever becomes textContent; no HTML is built from strings.
"use strict";
(() => {
  const LONGEST = 4000;
  const $ = (id) => document.getElementById(id);

  // A block that scrolls sideways can be reached and scrolled with the keyboard; one that does not is no stop.
  function stops() {
    for (const box of document.querySelectorAll(".scroll")) {
      const name = box.querySelector("caption")?.textContent ?? box.nextElementSibling?.textContent ?? "Table";
      const more = box.scrollWidth > box.clientWidth;
      for (const [key, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", name]]) {
        if (more) box.setAttribute(key, value);
        else box.removeAttribute(key);
      }
    }
  }
  stops();
  addEventListener("resize", stops);
  addEventListener("toggle", stops, true);
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  if (!$("viewer")) return;

  const data = JSON.parse($("data").textContent);
  const linked = { regressions: new Set(data.regressions), wins: new Set(data.wins) };
  const texts = new Map();
  let visible = [];
  let current = null;

  // The same rule as `clean` in text.py.
  const clean = (text) => String(text).replace(/\r\n/g, "\n")
    .replace(/[\p{Surrogate}\x00-\x08\x0b-\x1f\x7f\ufffe\uffff]/gu, "\ufffd")
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, (mark) => `[U+${mark.charCodeAt(0).toString(16).toUpperCase()}]`);
  const hashOf = (episode) => "#episode-" + encodeURIComponent(clean(episode.id));
  const list = (value) => (Array.isArray(value) ? value : []);
  const short = (text, limit) => (text.length > limit ? text.slice(0, limit) + "…" : text);
  const percent = (p) => (typeof p === "number" ? Math.round(100 * p) + " %" : "–");
  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);
  const tone = (x) => (x > 0 ? "good" : x < 0 ? "bad" : "");

  function make(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    for (const child of children) {
      if (child instanceof Node) node.append(child);
      else if (child !== null && child !== undefined) node.append(document.createTextNode(clean(child)));
    }
    return node;
  }

  // A block of log text; a long one is shown in part until asked for.
  function block(text, className = "") {
    const whole = clean(text);
    const pre = make("pre", className, short(whole, LONGEST));
    pre.dir = "auto";
    if (whole.length <= LONGEST) return pre;
    const more = make("button", "more", `Show all ${whole.length.toLocaleString("en")} characters`);
    more.type = "button";
    more.addEventListener("click", () => { pre.textContent = whole; more.remove(); });
    return make("div", "", pre, more);
  }

  function pretty(call) {
    if (call.arguments === null || call.arguments === undefined) return call.arguments_raw || "";
    return JSON.stringify(call.arguments, null, 2);
  }

  function chips(signals) {
    const row = make("p", "chips");
    for (const signal of list(signals)) {
      const text = short(clean(signal.signal), 40);
      const score = typeof signal.score === "number" ? " " + signed(signal.score) : "";
      const chip = make("span", "chip " + tone(signal.score), make("bdi", "", text), score);
      if (list(signal.evidence).length) chip.title = "evidence: " + short(clean(signal.evidence.join(", ")), 300);
      row.append(chip);
    }
    return row.childElementCount ? row : null;
  }

  function callView(call, status) {
    const head = make("p", "call-head", make("b", "", short(clean(call.name ?? "call"), 80)));
    if (status) head.append(make("span", "status " + (status === "ok" ? "good" : status === "failed" ? "bad" : ""), short(clean(status), 20)));
    return make("div", "call", head, block(pretty(call)));
  }

  function messageView(message, statuses) {
    const role = short(clean(message.role ?? "message"), 20);
    const from = message.role === "tool" && message.name ? `tool · ${short(clean(message.name), 80)}` : role;
    const head = make("p", "role", from);
    if (message.status) head.append(make("span", "status " + (message.status === "failed" ? "bad" : ""), short(clean(message.status), 20)));
    const body = [];
    if (message.reasoning) body.push(make("details", "", make("summary", "", "Reasoning"), block(message.reasoning, "prose")));
    if (message.content) body.push(block(message.content, message.role === "tool" ? "" : "prose"));
    list(message.tool_calls).forEach((call, i) => body.push(callView(call ?? {}, list(statuses)[i])));
    const known = ["system", "user", "assistant", "tool"].includes(message.role) ? message.role : "other";
    if (message.role === "system") return make("details", "message system", make("summary", "role", from), ...body);
    return make("div", "message " + known, head, ...body);
  }

  function stepView(step, index) {
    const head = make("h4", "", `Step ${index + 1}`);
    if (typeof step.credit === "number") head.append(make("span", "credit " + tone(step.credit), `credit ${signed(step.credit)}`));
    const node = make("section", "step");
    for (const message of list(step.observation)) node.append(messageView(message ?? {}));
    node.append(head, messageView({ role: "assistant", ...step.action }, step.status));
    const row = chips(step.signals);
    if (row) node.append(row);
    return node;
  }

  function facts(episode) {
    const row = make("p", "facts");
    const add = (name, value) => value && row.append(make("span", "", name + " ", make("bdi", "", short(clean(value), 80))));
    add("task", episode.task);
    add("policy", episode.policy);
    add("split", episode.split);
    add("likely success", percent(episode.p_success));
    if (typeof episode.value === "number") add("return", signed(episode.value));
    return row;
  }

  function show(episode, reveal) {
    current = episode;
    const pane = $("episode");
    pane.replaceChildren(make("h3", "", make("code", "", short(clean(episode.id), 80))), facts(episode));
    const row = chips(episode.signals);
    if (row) pane.append(row);
    list(episode.steps).forEach((step, i) => pane.append(stepView(step, i)));
    if (!list(episode.steps).length) pane.append(make("p", "absent", "This episode has no steps."));
    if (list(episode.tail).length) {
      pane.append(make("h4", "", "After the last action"), ...episode.tail.map((message) => messageView(message ?? {})));
    }
    mark();
    if (reveal) {
      pane.focus({ preventScroll: true });
      $("viewer").scrollIntoView({ block: "start" });
    }
  }

  function mark() {
    for (const link of $("list").querySelectorAll("a")) {
      const here = current !== null && link.getAttribute("href") === hashOf(current);
      if (here) {
        link.setAttribute("aria-current", "true");
        const box = $("list").parentElement;
        const top = link.offsetTop - box.offsetTop;
        if (top < box.scrollTop || top + link.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
      } else link.removeAttribute("aria-current");
    }
    const at = visible.indexOf(current);
    const place = at < 0 ? "" : `Episode ${at + 1} of `;
    $("status").textContent = `${place}${visible.length.toLocaleString("en")} shown, ${data.episodes.length.toLocaleString("en")} in this page`;
  }

  const failed = (episode) => list(episode.steps).some((step) => list(step.status).includes("failed"));
  const FILTERS = {
    all: () => true,
    regressions: (episode) => linked.regressions.has(episode.id),
    wins: (episode) => linked.wins.has(episode.id),
    success: (episode) => episode.p_success >= 0.5,
    failure: (episode) => typeof episode.p_success === "number" && episode.p_success < 0.5,
    errors: failed,
  };

  function textOf(episode) {
    if (!texts.has(episode)) texts.set(episode, JSON.stringify(episode).toLowerCase());
    return texts.get(episode);
  }

  function refresh() {
    const wanted = $("search").value.trim().toLowerCase();
    const words = wanted ? JSON.stringify(wanted).slice(1, -1) : "";
    const fits = FILTERS[$("filter").value];
    visible = data.episodes.filter((episode) => fits(episode) && (!words || textOf(episode).includes(words)));
    $("list").replaceChildren(...visible.map((episode) => {
      const p = episode.p_success;
      const dot = make("span", "p " + (typeof p === "number" ? tone(p - 0.5) : ""), percent(p));
      const link = make("a", "", make("code", "", short(clean(episode.id), 12)), dot, make("bdi", "task", short(clean(episode.task ?? ""), 48)));
      link.href = hashOf(episode);
      return make("li", "", link);
    }));
    mark();
  }

  function fromHash(reveal) {
    let wanted = "";
    try {
      wanted = decodeURIComponent(location.hash.slice(1));
    } catch {
      return false;
    }
    if (!wanted.startsWith("episode-")) return false;
    const episode = data.episodes.find((candidate) => "episode-" + clean(candidate.id) === wanted);
    if (!episode) return false;
    if (!visible.includes(episode)) {
      $("search").value = "";
      $("filter").value = "all";
      refresh();
    }
    show(episode, reveal);
    return true;
  }

  function move(by) {
    const at = visible.indexOf(current);
    const next = visible[at < 0 ? 0 : at + by];
    if (next) location.replace(hashOf(next));
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target === $("search")) return $("search").blur();
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    }
  });
  addEventListener("hashchange", () => fromHash(true));
  $("search").addEventListener("input", refresh);
  $("filter").addEventListener("change", refresh);

  $("viewer").hidden = false;
  refresh();
  if (!fromHash(true) && data.episodes.length) show(data.episodes[0], false);
})();
