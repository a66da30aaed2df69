// The index of a bundle: every episode in one list, searched and filtered; the pages hold the episodes themselves.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const { clean, short, percent, tone, fragment, make } = draw;
  const data = JSON.parse($("data").textContent);
  const BATCH = 200;

  const rows = data.rows.map((cells) => Object.fromEntries(data.columns.map((name, i) => [name, cells[i]])));
  for (const row of rows) row.text = Object.values(row).join("\n").toLowerCase();
  const link = (row) => data.pages[row.page] + fragment(row.id);
  let visible = [];
  let chosen = -1;
  let drawn = 0;

  const FILTERS = {
    all: () => true,
    success: (row) => row.p >= 0.5,
    failure: (row) => typeof row.p === "number" && row.p < 0.5,
    errors: (row) => row.flags.includes("failed call"),
    pairs: (row) => row.flags.includes("pair"),
    trained: (row) => row.flags.includes("trained"),
    regressions: (row) => row.flags.includes("regression"),
    wins: (row) => row.flags.includes("win"),
  };

  function line(row) {
    const p = make("span", "p " + (typeof row.p === "number" ? tone(row.p - 0.5) : ""), percent(row.p));
    const facts = [row.started, row.policy, row.task && `task ${short(row.task, 24)}`, row.steps + (row.steps === 1 ? " step" : " steps"), row.tools, row.flags];
    const anchor = make("a", "", make("code", "", short(clean(row.id), 12)), p,
      make("bdi", "request", row.request || "(no request)"),
      make("bdi", "task", facts.filter(Boolean).map(clean).join(" · ")));
    anchor.href = link(row);
    return make("li", "", anchor);
  }

  function more() {
    const next = visible.slice(drawn, drawn + BATCH);
    $("list").append(...next.map(line));
    drawn += next.length;
    $("more").hidden = drawn >= visible.length;
    $("more").textContent = `Show ${Math.min(BATCH, visible.length - drawn)} more`;
  }

  function refresh() {
    const words = $("search").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = FILTERS[$("filter").value];
    visible = rows.filter((row) => fits(row) && words.every((word) => row.text.includes(word)));
    chosen = -1;
    drawn = 0;
    $("list").replaceChildren();
    more();
    $("status").textContent = `${visible.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} episodes`;
    const asked = new URLSearchParams({ q: $("search").value, show: $("filter").value });
    history.replaceState(null, "", "#" + asked);
  }

  // What was searched stands in the address, so that going back finds it; a permalink goes on to its page.
  function fromHash() {
    let wanted = "";
    try {
      wanted = decodeURIComponent(location.hash.slice(1));
    } catch {
      wanted = "";
    }
    const row = wanted.startsWith("episode-") && rows.find((one) => "episode-" + clean(one.id) === wanted);
    if (row) return location.replace(link(row));
    const asked = new URLSearchParams(location.hash.slice(1));
    $("search").value = asked.get("q") ?? "";
    if (asked.get("show") in FILTERS) $("filter").value = asked.get("show");
    refresh();
    if (wanted.startsWith("episode-")) $("status").textContent = "That episode is not in this bundle.";
  }

  function move(by) {
    chosen = Math.max(0, Math.min(visible.length - 1, chosen + by));
    if (chosen >= drawn) more();
    $("list").children[chosen]?.firstChild.focus();
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target === $("search")) return $("search").blur();
    if (event.key === "Enter" && event.target === $("search") && visible.length) return location.assign(link(visible[0]));
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    }
  });
  addEventListener("hashchange", fromHash);
  $("search").addEventListener("input", refresh);
  $("filter").addEventListener("change", refresh);
  $("more").addEventListener("click", more);
  $("viewer").hidden = false;
  fromHash();
})();
