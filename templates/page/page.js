"use strict";
// Keeps a page up to date, shows logs, and remembers the theme. Every text of a log goes through textContent.
(() => {
  const main = document.getElementById("main"), state = document.getElementById("link-state");
  const themes = ["auto", "light", "dark"], button = document.getElementById("theme");
  const kept = (key, value) => { try { if (value === undefined) return localStorage.getItem(key); localStorage.setItem(key, value); } catch { /* nothing is kept */ } return null; };

  const theme = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
  };
  let chosen = themes.includes(kept("cloudrec-theme")) ? kept("cloudrec-theme") : "auto";
  button.hidden = false;
  theme(chosen);
  button.addEventListener("click", () => { chosen = themes[(themes.indexOf(chosen) + 1) % 3]; kept("cloudrec-theme", chosen); theme(chosen); });

  // Makes one element equal to another and leaves what is equal as it is: focus, scroll and open parts stay.
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const isBlank = (node) => node.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();
  const later = (node, wanted) => { while (node && !same(node, wanted)) node = node.nextSibling; return node; };
  const morph = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue; return; }
    if (old.hasAttribute("data-keep")) return;
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const ids = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    const wanted = new Set([...fresh.children].map((each) => each.id));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      if (isBlank(next)) continue;
      while (at && isBlank(at)) at = at.nextSibling;
      const found = next.id ? ids.get(next.id) : next.nodeType === Node.ELEMENT_NODE && at ? later(at, next) : at;
      if (found && found !== at && same(found, next)) {
        const between = [];
        for (let node = at; node && node !== found; node = node.nextSibling) between.push(node);
        // A node that is moved loses the focus in it, so what is between goes, unless the new page has it, too.
        if (found.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_PRECEDING && between.every((node) => !node.id || !wanted.has(node.id))) for (const node of between) node.remove();
        else old.insertBefore(found, at);
        at = found;
      }
      if (at && same(at, next)) { const here = at; at = at.nextSibling; morph(here, next); }
      else old.insertBefore(document.importNode(next, true), at);
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  };

  let busy = false, again = false;
  const renew = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
        if (fresh) { morph(main, fresh); window.cloudrecCharts.refresh(); }
        told("live", `as of ${new Date().toLocaleTimeString("en-GB")}`);
      }
    } catch { told("lost", "not connected"); }
    busy = false;
    if (again) { again = false; setTimeout(renew, 500); }
  };
  const told = (name, text) => { state.dataset.state = name; state.textContent = text; };
  if (main.dataset.feed) {
    const feed = new EventSource(main.dataset.feed);
    let lost = false;
    feed.addEventListener("open", () => { told("live", `as of ${new Date().toLocaleTimeString("en-GB")}`); if (lost) renew(); lost = false; });
    feed.addEventListener("error", () => { lost = true; told("lost", "not connected: is `cloudrec ui` still running?"); });
    feed.addEventListener("changed", renew);
    addEventListener("pagehide", () => feed.close());
  }

  const find = document.getElementById("find");
  if (find) find.elements.state.addEventListener("change", () => find.requestSubmit());
  const compare = document.getElementById("compare");
  if (compare) {
    const count = () => { const some = compare.querySelectorAll("input[name=run]:checked").length; document.getElementById("compare-button").disabled = some < 2 || some > 8; };
    compare.addEventListener("change", count);
    count();
  }

  const log = document.getElementById("log");
  if (log) {
    const lines = document.getElementById("log-lines"), rank = document.getElementById("log-rank"), search = document.getElementById("log-search");
    const follow = document.getElementById("log-follow"), count = document.getElementById("log-count"), most = 5000;
    let source = null, shown = 0, waiting = 0;
    const row = (text, wanted) => {
      const made = document.createElement("span");
      made.className = "row";
      let at = 0, low = text.toLowerCase(), here;
      while (wanted && (here = low.indexOf(wanted, at)) >= 0) {
        const mark = document.createElement("mark");
        mark.textContent = text.slice(here, here + wanted.length);
        made.append(text.slice(at, here), mark);
        at = here + wanted.length;
      }
      made.append(text.slice(at));
      return made;
    };
    const say = () => { count.textContent = shown ? `${shown.toLocaleString("en")} lines${search.value ? " found" : ""}` : search.value ? "no line has this text" : "no lines yet"; };
    const open = () => {
      if (source) source.close();
      const wanted = search.value.toLowerCase();
      source = new EventSource(`${log.dataset.log}?rank=${rank.value}&search=${encodeURIComponent(search.value)}`);
      source.addEventListener("begin", () => { lines.replaceChildren(); shown = 0; say(); });
      source.addEventListener("message", (event) => {
        const rows = JSON.parse(event.data).map((line) => row(line[1], wanted));
        lines.append(...rows);
        shown = Math.min(shown + rows.length, most);
        while (lines.childElementCount > most) lines.firstChild.remove();
        if (follow.checked) lines.scrollTop = lines.scrollHeight;
        say();
      });
      source.addEventListener("over", (event) => { source.close(); source = null; const why = JSON.parse(event.data); if (why) count.textContent = why; else say(); });
    };
    lines.addEventListener("scroll", () => { if (lines.scrollTop + lines.clientHeight < lines.scrollHeight - 40 && document.activeElement === lines) follow.checked = false; });
    follow.addEventListener("change", () => { if (follow.checked) { lines.scrollTop = lines.scrollHeight; if (!source) open(); } });
    rank.addEventListener("change", open);
    search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(open, 250); });
    open();
  }
})();
