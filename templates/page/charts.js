"use strict";
// Draws each chart again from its values, with hover, zoom and smoothing. Without this script a chart is a picture.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const AXES = [["step", "Step"], ["time", "Time"], ["samples", "Samples"]];
  const view = { axis: 0, smooth: 0, range: null, hover: null };
  const charts = new Map(); // figure -> what is drawn in it

  try {
    const kept = JSON.parse(localStorage.getItem("cloudrec-charts") || "{}");
    if (kept.axis === 1 || kept.axis === 2) view.axis = kept.axis;
    if (kept.smooth > 0 && kept.smooth < 1) view.smooth = kept.smooth;
  } catch { /* a page without storage keeps nothing */ }
  const keep = () => { try { localStorage.setItem("cloudrec-charts", JSON.stringify({ axis: view.axis, smooth: view.smooth })); } catch { /* as above */ } };

  const svg = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const html = (name, attributes, ...inside) => {
    const made = document.createElement(name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    made.append(...inside);
    return made;
  };
  const short = (value) => {
    const size = Math.abs(value);
    for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (size >= factor) return `${+(value / factor).toPrecision(3)}${letter}`;
    return value && size < 1e-3 ? value.toExponential(1) : `${+value.toPrecision(4)}`;
  };
  const clock = (seconds) => {
    if (seconds < 60) return `${+seconds.toFixed(1)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds % 3600 / 60)).padStart(2, "0")} min`;
    return `${Math.floor(seconds / 86400)} d ${String(Math.floor(seconds % 86400 / 3600)).padStart(2, "0")} h`;
  };
  const hours = (seconds) => seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${+(seconds / 60).toPrecision(3)} min` : `${+(seconds / 3600).toPrecision(3)} h`;
  const across = (axis, value) => axis === 1 ? clock(value) : axis === 2 ? short(value) : Math.round(value).toLocaleString("en");
  const ticks = (low, high, count, whole) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough) || 10 * power;
    if (whole) step = Math.max(1, Math.ceil(step));
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(n * step);
    return found;
  };
  // An average that weighs older points less, and does not begin at 0.
  const smoothed = (line, weight) => {
    let sum = 0, share = 0;
    return line.map(([x, y]) => { sum = sum * weight + y; share = share * weight + 1; return [x, sum / share]; });
  };
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle; else high = middle; }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  };

  class Drawn {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.text = "";
      this.picture = svg("svg", { "aria-hidden": "true" });
      this.over = svg("g", {});
      this.tip = html("div", { class: "tip", hidden: "" });
      this.handle = html("div", { class: "handle", tabindex: "0", role: "slider", "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" });
      this.plot.replaceChildren(this.picture, this.tip, this.handle);
      this.listen();
    }
    read() {
      const text = this.figure.querySelector(".chart-data").textContent;
      if (text === this.text) return;
      this.text = text;
      this.data = JSON.parse(text);
      this.handle.setAttribute("aria-label", `${this.data.title}: arrows move along it, + and - zoom, Escape shows all`);
    }
    // The points of each line on the chosen axis, and which of them are shown.
    lines() {
      const at = this.axis();
      let series = this.data.series;
      if (this.data.kind === "stack") {
        const sums = new Map();
        series = series.map((each) => ({ ...each, lines: each.lines.map((line) => line.map((p) => { const top = (sums.get(p[0]) || 0) + p[3]; sums.set(p[0], top); return [p[0], p[1], p[2], top, p[3]]; })) }));
      }
      return series.map((each) => ({ ...each, lines: each.lines.map((line) => line.map((p) => [p[at], p[3], p.length > 4 ? p[4] : p[3]])) }));
    }
    axis() { return this.figure.id === "chart-auc-cost" ? 0 : view.axis; }
    range() { return this.figure.id === "chart-auc-cost" ? null : view.range; }
    draw() {
      const width = Math.max(this.plot.clientWidth, 200), height = width < 420 ? 190 : 210;
      const left = 50, right = 10, top = 8, bottom = 24;
      Object.assign(this, { width, height, left, right, top, bottom });
      this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
      if (this.data.kind === "dots") return this.drawDots();
      const lines = this.lines(), weight = this.data.kind === "line" ? view.smooth : 0;
      const all = lines.flatMap((each) => each.lines.flat());
      const range = this.range();
      let [low, high] = range || [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
      if (!(high > low)) { low -= 1; high += 1; }
      const shown = all.filter((p) => p[0] >= low && p[0] <= high);
      const values = (shown.length ? shown : all).map((p) => p[1]);
      let under = this.data.zero ? 0 : Math.min(...values), over = Math.max(...values);
      const margin = (over - under) * 0.06 || Math.abs(over) * 0.05 || 1;
      if (!this.data.zero) under -= margin;
      over += margin;
      this.scale(low, high, under, over);
      const inside = svg("g", { "clip-path": `inset(0)` });
      const parts = this.frame(ticks(low, high, width < 420 ? 4 : 6, this.axis() === 0 && this.figure.id !== "chart-auc-cost"), (x) => this.figure.id === "chart-auc-cost" ? `$${short(x)}` : this.axis() === 1 ? hours(x) : short(x), ticks(under, over, 4));
      if (this.axis() === 0) for (const step of this.data.restarts || []) if (step >= low && step <= high) parts.push(svg("line", { class: "restart", x1: this.x(step), x2: this.x(step), y1: top, y2: height - bottom }));
      let floor = null;
      for (const each of lines) {
        for (const line of each.lines) {
          const cut = line.filter((p, i) => (line[i + 1] || p)[0] >= low && (line[i - 1] || p)[0] <= high);
          if (!cut.length) continue;
          if (this.data.kind === "stack") {
            const base = floor ? floor.filter((p, i) => (floor[i + 1] || p)[0] >= low && (floor[i - 1] || p)[0] <= high) : cut.map((p) => [p[0], 0]);
            inside.append(svg("path", { class: `area tone-${each.tone}`, d: `${this.path(cut)}L${this.path([...base].reverse()).slice(1)}Z` }));
          } else if (line.length === 1) {
            inside.append(svg("circle", { class: `dot tone-${each.tone}`, cx: this.x(line[0][0]), cy: this.y(line[0][1]), r: 4 }));
          } else {
            if (weight) inside.append(svg("path", { class: `line raw tone-${each.tone}`, d: this.path(cut) }));
            inside.append(svg("path", { class: `line tone-${each.tone}`, d: this.path(weight ? smoothed(cut, weight) : cut) }));
          }
        }
        floor = each.lines[0] || floor;
      }
      const clip = svg("clipPath", { id: `${this.figure.id}-clip` });
      clip.append(svg("rect", { x: left, y: 0, width: width - left - right, height: height - bottom }));
      inside.setAttribute("clip-path", `url(#${this.figure.id}-clip)`);
      this.picture.replaceChildren(clip, ...parts, inside, this.over);
      const steps = [...new Set(all.map((p) => p[0]))].filter((x) => x >= low && x <= high).sort((a, b) => a - b);
      this.stops = steps;
      this.handle.setAttribute("aria-valuemax", String(Math.max(steps.length - 1, 0)));
      this.point();
    }
    drawDots() {
      const dots = this.data.dots, xs = dots.map((d) => d[1]), ys = dots.map((d) => d[2]);
      const low = 0, high = Math.max(...xs) * 1.06 || 1, spread = (Math.max(...ys) - Math.min(...ys)) * 0.12 || Math.abs(ys[0]) * 0.05 || 1;
      this.scale(low, high, Math.min(...ys) - spread, Math.max(...ys) + spread);
      const parts = this.frame(ticks(low, high, this.width < 420 ? 4 : 6), (x) => this.data.xTitle.startsWith("Time") ? hours(x) : `${this.data.xUnit}${short(x)}`, ticks(Math.min(...ys) - spread, Math.max(...ys) + spread, 4));
      for (const dot of dots) parts.push(svg("circle", { class: "dot tone-1", cx: this.x(dot[1]), cy: this.y(dot[2]), r: dots.length > 200 ? 2.5 : 4 }));
      this.picture.replaceChildren(...parts, this.over);
      this.sorted = [...dots].sort((a, b) => a[1] - b[1]);
      this.stops = this.sorted.map((_, n) => n);
      this.handle.setAttribute("aria-valuemax", String(dots.length - 1));
    }
    scale(low, high, under, over) {
      this.low = low; this.high = high;
      this.x = (value) => +(this.left + (value - low) / (high - low) * (this.width - this.left - this.right)).toFixed(1);
      this.y = (value) => +(this.height - this.bottom - (value - under) / (over - under) * (this.height - this.top - this.bottom)).toFixed(1);
      this.back = (pixel) => low + (pixel - this.left) / (this.width - this.left - this.right) * (high - low);
    }
    frame(xs, label, ys) {
      const parts = [];
      for (const y of ys) {
        parts.push(svg("line", { class: "grid", x1: this.left, x2: this.width - this.right, y1: this.y(y), y2: this.y(y) }));
        parts.push(svg("text", { x: this.left - 7, y: this.y(y) + 4, "text-anchor": "end" }, short(y)));
      }
      for (const x of xs) parts.push(svg("text", { x: Math.min(this.x(x), this.width - this.right - 8), y: this.height - this.bottom + 16, "text-anchor": "middle" }, label(x)));
      return parts;
    }
    path(points) { return `M${points.map((p) => `${this.x(p[0])} ${this.y(p[1])}`).join("L")}`; }
    // Shows the values at the point under the pointer, or where the keyboard has moved to.
    point() {
      const dots = this.data.kind === "dots", at = dots ? this.dot : this.figure.id === "chart-auc-cost" ? this.own : view.hover;
      if (at === null || at === undefined || (!dots && (at < this.low || at > this.high))) { this.over.replaceChildren(); this.tip.hidden = true; return; }
      const marks = [], rows = [];
      let x;
      if (dots) {
        const [label, cost, score] = this.sorted[at];
        x = this.x(cost);
        marks.push(svg("circle", { class: "ring tone-1", cx: x, cy: this.y(score), r: 6 }));
        rows.push(label, `${this.data.yTitle} ${short(score)}`, `${this.data.xTitle} ${this.data.xTitle.startsWith("Time") ? clock(cost) : this.data.xUnit + short(cost)}`);
      } else {
        let found = null;
        const many = this.data.series.length > 1;
        for (const each of this.lines()) {
          const points = each.lines.flat().sort((a, b) => a[0] - b[0]);
          if (!points.length) continue;
          const near = nearest(points, at);
          found = found === null ? near[0] : found;
          const unit = this.data.unit ? ` ${this.data.unit}` : "";
          rows.push(many ? `${each.name} ${short(near[2])}${unit}` : `${short(near[2])}${unit}`);
          marks.push(svg("circle", { class: `ring tone-${each.tone}`, cx: this.x(near[0]), cy: this.y(near[1]), r: 3.5 }));
        }
        x = this.x(found);
        const place = this.figure.id === "chart-auc-cost" ? `$${short(found)}` : `${AXES[this.axis()][1].toLowerCase()} ${across(this.axis(), found)}`;
        rows.unshift(place);
        marks.unshift(svg("line", { class: "cross", x1: x, x2: x, y1: this.top, y2: this.height - this.bottom }));
      }
      this.over.replaceChildren(...marks);
      this.tip.replaceChildren(...rows.map((row) => html("div", {}, row)));
      this.tip.hidden = false;
      const scale = this.plot.clientWidth / this.width, pixel = x * scale;
      if (pixel > this.plot.clientWidth / 2) { this.tip.style.left = ""; this.tip.style.right = `${this.plot.clientWidth - pixel + 10}px`; }
      else { this.tip.style.right = ""; this.tip.style.left = `${pixel + 10}px`; }
      this.told = rows.join(", ");
    }
    aim(x) {
      if (this.data.kind === "dots") {
        this.dot = x;
        this.point();
      } else if (this.figure.id === "chart-auc-cost") {
        this.own = x;
        this.point();
      } else {
        view.hover = x;
        for (const each of charts.values()) if (each.data.kind !== "dots") each.point();
      }
    }
    listen() {
      let from = null;
      const where = (event) => {
        const box = this.plot.getBoundingClientRect();
        return [(event.clientX - box.left) * this.width / box.width, (event.clientY - box.top) * this.width / box.width];
      };
      const clear = () => { this.aim(null); };
      this.handle.addEventListener("pointermove", (event) => {
        const [px, py] = where(event);
        if (this.data.kind === "dots") {
          let best = null, least = 900;
          this.sorted.forEach((dot, n) => { const away = (this.x(dot[1]) - px) ** 2 + (this.y(dot[2]) - py) ** 2; if (away < least) { least = away; best = n; } });
          return this.aim(best);
        }
        this.aim(Math.min(Math.max(this.back(px), this.low), this.high));
        if (from !== null && Math.abs(px - from) > 6) {
          this.chosen = this.chosen || svg("rect", { class: "chosen", y: this.top, height: this.height - this.top - this.bottom });
          this.chosen.setAttribute("x", Math.min(px, from));
          this.chosen.setAttribute("width", Math.abs(px - from));
          this.picture.append(this.chosen);
        }
      });
      this.handle.addEventListener("pointerdown", (event) => {
        if (this.data.kind === "dots" || this.figure.id === "chart-auc-cost" || event.button) return;
        from = where(event)[0];
        this.handle.setPointerCapture(event.pointerId);
      });
      const drop = (event, taken) => {
        if (from === null) return;
        const to = where(event)[0], began = from;
        from = null;
        if (this.chosen) { this.chosen.remove(); this.chosen = null; }
        if (taken && Math.abs(to - began) > 6) zoom(Math.max(this.back(Math.min(began, to)), this.low), Math.min(this.back(Math.max(began, to)), this.high));
      };
      this.handle.addEventListener("pointerup", (event) => drop(event, true));
      this.handle.addEventListener("pointercancel", (event) => drop(event, false));
      this.handle.addEventListener("pointerleave", () => { if (from === null && document.activeElement !== this.handle) clear(); });
      this.handle.addEventListener("blur", clear);
      this.handle.addEventListener("dblclick", () => zoom(null));
      this.handle.addEventListener("click", () => { if (this.data.kind === "dots" && this.dot !== null && this.dot !== undefined) this.open(); });
      this.handle.addEventListener("keydown", (event) => {
        const stops = this.stops || [];
        if (!stops.length) return;
        const now = this.data.kind === "dots" ? this.dot : this.figure.id === "chart-auc-cost" ? this.own : view.hover;
        let at = now === null || now === undefined ? -1 : stops.reduce((best, x, n) => Math.abs(x - now) < Math.abs(stops[best] - now) ? n : best, 0);
        const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
        if (event.key in moves) at = Math.min(Math.max(at < 0 ? (moves[event.key] > 0 ? 0 : stops.length - 1) : at + moves[event.key], 0), stops.length - 1);
        else if (event.key === "Home") at = 0;
        else if (event.key === "End") at = stops.length - 1;
        else if (event.key === "Escape" || event.key === "0") { zoom(null); return; }
        else if (event.key === "Enter" && this.data.kind === "dots" && at >= 0) { this.open(); return; }
        else if ((event.key === "+" || event.key === "=" || event.key === "-") && this.data.kind !== "dots" && this.figure.id !== "chart-auc-cost") {
          const middle = now === null ? (this.low + this.high) / 2 : now, half = (this.high - this.low) / (event.key === "-" ? 1 : 4);
          zoom(middle - half, middle + half);
          event.preventDefault();
          return;
        } else return;
        event.preventDefault();
        this.aim(stops[at]);
        this.handle.setAttribute("aria-valuenow", String(at));
        this.handle.setAttribute("aria-valuetext", this.told || "");
      });
    }
    open() {
      const base = this.figure.closest("[data-runs]");
      if (base) location.href = base.dataset.runs + encodeURIComponent(this.sorted[this.dot][0]);
    }
  }

  const all = () => { for (const each of charts.values()) each.draw(); };
  const zoom = (low, high) => {
    view.range = low === null ? null : [low, high];
    for (const button of document.querySelectorAll(".unzoom")) button.hidden = view.range === null;
    all();
  };
  const tools = (place) => {
    if (!place || place.childElementCount) return;
    const smooth = html("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(view.smooth), id: "smooth" });
    const told = html("output", { class: "num small", for: "smooth" }, view.smooth.toFixed(2));
    smooth.addEventListener("input", () => { view.smooth = +smooth.value; told.textContent = view.smooth.toFixed(2); keep(); all(); });
    const axis = html("select", { id: "axis" });
    AXES.forEach(([, name], n) => axis.append(html("option", n === view.axis ? { value: n, selected: "" } : { value: n }, name)));
    axis.addEventListener("change", () => { view.axis = +axis.value; view.range = null; view.hover = null; keep(); zoom(null); });
    const reset = html("button", { type: "button", class: "unzoom", hidden: "" }, "Show all");
    reset.addEventListener("click", () => zoom(null));
    place.append(html("label", { for: "smooth" }, "Smoothing"), smooth, told, html("label", { for: "axis" }, "Across"), axis, reset, html("span", { class: "soft small" }, "drag to zoom"));
    place.classList.add("bar");
  };
  const refresh = () => {
    tools(document.getElementById("tools"));
    for (const [figure] of charts) if (!figure.isConnected) charts.delete(figure);
    for (const figure of document.querySelectorAll("figure.chart")) {
      const drawn = charts.get(figure) || new Drawn(figure);
      charts.set(figure, drawn);
      drawn.read();
      drawn.draw();
    }
  };
  let waiting = 0;
  addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(all); });
  window.cloudrecCharts = { refresh };
  refresh();
})();
