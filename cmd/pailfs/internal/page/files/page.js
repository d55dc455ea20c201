// Fills the page with page.json, again and again. Text goes in as text: nothing here makes markup of it.
"use strict";

const refreshEvery = 5000; // milliseconds
const patience = 10000;
const $ = (id) => document.getElementById(id);

// The token of who may know names stands behind the # of the address that pailfs status --page prints.
// It is kept for this tab, and taken out of the address so that it is not copied with it.
const tokenKey = "pailfs-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(tokenKey, given);
  history.replaceState(null, "", location.pathname);
}

// visible writes out what would not be seen, or would change how what stands beside it is read:
// control characters, marks of direction, unassigned and private characters, halves of pairs.
function visible(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}\ufffd]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

// name returns an element with a name, whose direction is its own.
function name(text) {
  const e = document.createElement("bdi");
  e.textContent = visible(text === "" ? "/" : text);
  return e;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let i = 0;
  n = Math.max(0, n);
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i > 0 && n < 10 ? n.toFixed(1) : Math.round(n)) + "\u00a0" + units[i];
}

function seconds(s) {
  if (s >= 3600) return Math.floor(s / 3600) + "\u00a0h " + Math.floor((s % 3600) / 60) + "\u00a0min";
  if (s >= 60) return Math.floor(s / 60) + "\u00a0min " + Math.floor(s % 60) + "\u00a0s";
  if (s >= 1) return s.toFixed(1) + "\u00a0s";
  if (s >= 0.001) return (s * 1000).toFixed(1) + "\u00a0ms";
  return Math.round(s * 1e6) + "\u00a0µs";
}

const grouped = new Intl.NumberFormat("en");
const shown = {
  bytes,
  seconds,
  rate: (n) => bytes(n) + "/s",
  limit: (n) => (n > 0 ? bytes(n) + "/s" : "none"),
  count: (n) => grouped.format(n),
  number: (n) => (n < 10 ? n.toFixed(1) : grouped.format(Math.round(n))),
  share: (n) => (100 * n).toFixed(1) + "\u00a0%",
  plain: String,
};

// at returns a field of a document, undefined if it has none.
const at = (doc, path) => path.split(".").reduce((o, key) => (o == null ? undefined : o[key]), doc);

// put sets text that has changed: what has not is not read out again.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function time(element, date) {
  element.dateTime = date.toISOString();
  put(element, date.toLocaleTimeString("en-GB"));
}

// row returns a row; its first cell is its header, and numbers stand at the right.
function row(cells) {
  const tr = document.createElement("tr");
  cells.forEach(([content, as], i) => {
    const cell = document.createElement(i === 0 ? "th" : "td");
    if (i === 0) cell.scope = "row";
    if (as) {
      const data = document.createElement("data");
      data.value = String(content);
      data.textContent = shown[as](content);
      cell.className = "n";
      cell.append(data);
    } else {
      cell.append(content);
    }
    tr.append(cell);
  });
  return tr;
}

// rows fills the table in an element, which is hidden while it has nothing to show.
function rows(id, all) {
  const box = $(id);
  box.querySelector("tbody").replaceChildren(...all.map(row));
  box.hidden = all.length === 0;
}

const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);

const latencies = (all) =>
  all.map((o) => [[visible(o.operation)], [o.count, "count"], [sum(o.errors), "count"], [o.p50_seconds, "seconds"], [o.p99_seconds, "seconds"]]);

const spotNotices = {
  off: "nobody is asked",
  unknown: "cannot be asked for",
  none: "none: the machine stays",
  given: "given: the machine is taken back",
};

function show(doc) {
  const mount = doc.mount;
  for (const e of document.querySelectorAll("[data-field]")) {
    const value = at(doc, e.dataset.field);
    if (value == null) {
      e.removeAttribute("value");
      put(e, "–");
    } else {
      e.value = String(value);
      put(e, shown[e.dataset.as](value));
    }
  }
  document.title = "pailfs: " + visible(mount.source) + ", " + visible(mount.health);
  $("source").replaceChildren(name(mount.source));
  $("where").hidden = mount.mountpoint === "";
  put($("mountpoint"), visible(mount.mountpoint));
  const well = mount.health === "ok";
  put($("health"), (well ? "✓ " : "✗ ") + visible(mount.health));
  $("health").className = "badge " + (well ? "good" : "bad");
  const wrong = [...mount.reasons, ...(doc.warnings ?? [])];
  say(well ? "Nothing is wrong." : mount.reasons.length + (mount.reasons.length === 1 ? " thing is" : " things are") + " wrong: see below.");
  $("wrong").hidden = wrong.length === 0;
  if ($("reasons").dataset.of !== JSON.stringify(wrong)) {
    $("reasons").dataset.of = JSON.stringify(wrong);
    $("reasons").replaceChildren(...wrong.map((text) => {
      const li = document.createElement("li");
      li.textContent = visible(text);
      return li;
    }));
  }
  $("draining").hidden = doc.drain == null;
  if (doc.drain) {
    put($("drain-reason"), visible(doc.drain.reason) + (doc.drain.safe ? "; everything is in the object store" : ""));
    time($("drain-deadline"), new Date(doc.drain.deadline));
  }
  $("nameless").hidden = doc.names;
  $("uploads").hidden = mount.uploads == null;
  put($("endpoint"), visible(mount.link.endpoint));
  put($("spot"), spotNotices[doc.spot_notice] ?? visible(doc.spot_notice));
  const now = new Date(doc.time);
  rows("waiting", (mount.uploads?.wait_for ?? []).map((e) => [
    [name(e.path)], [visible(e.doing + ", " + e.state)], [e.bytes, "bytes"], [Math.max(0, (now - new Date(e.since)) / 1000), "seconds"],
    [visible(e.error || "it changed before all of it was sent")],
  ]));
  rows("kernel", latencies(mount.latencies));
  rows("requests", latencies(mount.requests));
  rows("loaders", mount.sessions.map((s) => [
    [name(s.task)], [s.worker, "plain"], [s.uid, "plain"], [s.requested.files, "count"], [s.fetching.files, "count"], [s.ready.files, "count"],
    [s.active.files, "count"], [s.failed.files, "count"], [s.charged_bytes, "bytes"],
  ]));
  rows("readers", mount.readers.map((r) => [[name(r.name)], [r.pid, "plain"], [r.open_files, "count"]]));
  rows("keys", (doc.problem_keys.examples ?? []).map((k) => [[name(k.key)], [visible(k.reason)]]));
  put($("version"), visible(doc.version));
  time($("shown"), now);
  latest = doc.history;
  charts.forEach((chart) => chart.draw(latest));
}

// say tells a screen reader, once, what has changed.
const say = (text) => put($("state"), text);

const svgNS = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const e = document.createElementNS(svgNS, tag);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  Object.assign(e, attributes);
  e.append(...children);
  return e;
}

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
const halfHour = 1800; // seconds

// Chart is one picture of the history: its lines differ in their dashes, not in colour alone; what it
// shows is also said in a sentence, and stands in a table.
class Chart {
  constructor(id, title, as, lines) {
    Object.assign(this, { id, as, lines });
    this.says = element("p", { id: id + "-says" });
    this.picture = svg("svg", { role: "img", "aria-labelledby": id + "-title", "aria-describedby": id + "-says" });
    this.body = element("tbody", {});
    const heads = ["Minute", ...lines.map(([, label]) => label)].map((text, i) => element("th", { scope: "col", textContent: text, className: i ? "n" : "" }));
    const region = element("div", { className: "scroll", tabIndex: 0 }, element("table", {},
      element("caption", { textContent: title + ", means of minutes" }), element("thead", {}, element("tr", {}, ...heads)), this.body));
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", title + " as a table");
    this.details = element("details", {}, element("summary", { textContent: title + " as a table" }), region);
    this.details.addEventListener("toggle", () => latest && this.fill(latest));
    const legend = element("ul", { className: "legend" }, ...lines.map(([, label], i) => element("li", {},
      svg("svg", { viewBox: "0 0 32 10", "aria-hidden": "true" }, svg("path", { class: "s s" + i, d: "M0 5H32" })), label)));
    const figure = element("figure", {}, element("figcaption", {}, element("span", { id: id + "-title", textContent: title }), this.says),
      this.picture, legend, this.details);
    figure.setAttribute("aria-labelledby", id + "-title");
    $("charts").append(figure);
  }

  draw(history) {
    const width = Math.max(200, this.picture.clientWidth), height = Math.max(80, this.picture.clientHeight);
    const left = 8, right = width - 8, top = 18, bottom = height - 18;
    const n = history.time.length;
    const values = this.lines.map(([key]) => history.series[key]);
    const most = Math.max(0, ...values.flat());
    const end = n ? history.time[n - 1] : 0;
    const x = (t) => right - ((end - t) / halfHour) * (right - left);
    const y = (v) => bottom - (most > 0 ? v / most : 0) * (bottom - top);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const parts = [svg("path", { class: "axis", d: `M${left} ${top}H${right}M${left} ${bottom}H${right}` })];
    const text = (tx, ty, anchor, what) => parts.push(svg("text", { x: tx, y: ty, "text-anchor": anchor }, what));
    text(left, top - 5, "start", n ? shown[this.as](most) : "");
    if (n) {
      text(left, height - 4, "start", clock(end - halfHour));
      text(right, height - 4, "end", clock(end));
    }
    values.forEach((line, i) => {
      const d = line.map((v, k) => (k && history.time[k] - history.time[k - 1] < 3 * history.every_seconds ? "L" : "M") + x(history.time[k]).toFixed(1) + " " + y(v).toFixed(1)).join("");
      // A dot is seen where there is no second point yet.
      if (n) parts.push(svg("path", { class: "s s" + i, "stroke-linecap": "round", d: n === 1 ? d + "h.1" : d }));
    });
    this.picture.replaceChildren(...parts);
    put(this.says, n ? this.lines.map(([, label], i) => `${label}: ${shown[this.as](values[i][n - 1])} now, ${shown[this.as](Math.max(...values[i]))} at most`).join("; ") + "."
      : `Nothing yet: the first point comes after ${history.every_seconds} seconds.`);
    this.fill(history);
  }

  // fill writes the table, if somebody looks at it.
  fill(history) {
    if (!this.details.open) return;
    const minutes = new Map();
    history.time.forEach((t, k) => {
      const minute = Math.floor(t / 60) * 60;
      minutes.set(minute, [...(minutes.get(minute) ?? []), k]);
    });
    const mean = (key, of) => of.reduce((total, k) => total + history.series[key][k], 0) / of.length;
    this.body.replaceChildren(...[...minutes].reverse().map(([minute, of]) =>
      row([[clock(minute)], ...this.lines.map(([key]) => [mean(key, of), this.as])])));
  }
}

let latest = null;
const charts = [
  new Chart("c-reads", "Reads by tier", "rate", [["memory_bytes_per_second", "Memory"], ["ssd_bytes_per_second", "SSD"], ["oss_bytes_per_second", "Object store"]]),
  new Chart("c-hits", "Reads answered here", "share", [["hit_share", "Memory and SSD"]]),
  new Chart("c-link", "Object store", "rate", [["received_bytes_per_second", "Received"], ["sent_bytes_per_second", "Sent"]]),
  new Chart("c-pending", "Waits for its upload", "bytes", [["pending_bytes", "Bytes that wait"]]),
  new Chart("c-requests", "Requests to the object store", "number", [["requests_in_flight", "In flight"], ["requests_waiting", "Waiting"], ["throttled_per_second", "Told to slow down, a second"]]),
  new Chart("c-errors", "Requests of the kernel", "number", [["reads_per_second", "Reads a second"], ["errors_per_second", "Errors a second"]]),
];
new ResizeObserver(() => latest && charts.forEach((chart) => chart.draw(latest))).observe($("charts"));

async function ask() {
  const token = sessionStorage.getItem(tokenKey);
  const answer = await fetch("page.json", { cache: "no-store", signal: AbortSignal.timeout(patience), headers: token ? { Authorization: "Bearer " + token } : {} });
  if (answer.status === 403 && token) {
    // Without the token counts are told, as to everybody.
    sessionStorage.removeItem(tokenKey);
    put($("nameless"), (await answer.text()).trim());
    return ask();
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

let paused = false;
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  if (!paused) refresh();
});

let asking = false;
async function refresh() {
  if (asking || paused || document.hidden) return;
  asking = true;
  try {
    show(await ask());
  } catch (error) {
    put($("health"), "✗ no answer");
    $("health").className = "badge bad";
    say("The daemon does not answer: " + visible(error.message) + ". What is shown is as it was.");
  }
  asking = false;
}
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, refreshEvery);
refresh();
