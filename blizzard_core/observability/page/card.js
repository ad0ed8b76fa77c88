// One source or table, drawn with all that the daemon knows of it.
const STEPS = ["plan", "ingest", "prepare", "publish", "advance"];
const opened = new Map();
const cards = new Map();
// What the charts show: minutes of an hour, or hours of a day or a week.
const SPANS = {"": {key: "hour", words: "in an hour", last: "last hour", step: "min", from: "60 min ago", cut: target => target.minutes},
  day: {key: "day", words: "in 24 h", last: "last 24 h", step: "h", from: "24 h ago", cut: target => last(target.hours, 24)},
  week: {key: "week", words: "in 7 days", last: "last 7 days", step: "h", from: "7 days ago", cut: target => target.hours}};
const last = (hours, count) => Object.fromEntries(Object.entries(hours).map(([name, series]) => [name, series.slice(-count)]));
function chart(kind, series, shown = SPANS[""]) {
  const width = 300 / series.length;
  const top = Math.max(...series, 1);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 300 50");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${kind} per ${shown.step === "h" ? "hour" : "minute"} over the ${shown.last}, ${number(total(series))} in all`);
  const base = document.createElementNS(SVG, "line");
  for (const [k, v] of [["x1", 0], ["x2", 300], ["y1", 49.5], ["y2", 49.5]]) base.setAttribute(k, v);
  svg.append(base);
  series.forEach((value, minute) => {
    if (!value) return;
    const height = Math.max(1.5, value / top * 47);
    const bar = document.createElementNS(SVG, "rect");
    for (const [k, v] of [["x", minute * width + width * .1], ["width", width * .8], ["y", 49.5 - height], ["height", height]]) bar.setAttribute(k, v);
    const title = document.createElementNS(SVG, "title");
    title.textContent = `${series.length - 1 - minute} ${shown.step} ago: ${number(value)} ${kind}`;
    bar.append(title);
    svg.append(bar);
  });
  return el("div", {class: `chart ${kind}`},
    el("div", {class: "label"}, el("span", {}, el("b", {}, compact(total(series))), ` ${kind} ${shown.words}`)),
    svg,
    el("div", {class: "label"}, el("span", {}, shown.from), el("span", {}, `peak ${compact(top)}/${shown.step}`)));
}
function figure(value, label, level) {
  return el("div", {class: `figure ${level || ""}`}, el("b", {}, value), el("span", {}, label));
}
function fold(key, open, level, count, title, ...children) {
  if (!children.length) return null;
  const node = el("details", {open: (opened.get(key) ?? open) ? "" : null},
    el("summary", {class: level}, el("b", {}, count), ` ${title}`), ...children);
  node.addEventListener("toggle", () => opened.set(key, node.open));
  return node;
}
function doing(target, now) {
  const pulse = target.pulse;
  if (pulse.phase === "ended") return "ended";
  if (pulse.standby) return `standing by: ${pulse.standby}`;
  if (target.running.length) return "working on a batch";
  if (pulse.phase === "waiting") return pulse.error ? "waiting before another try" : "waiting for the next poll";
  return pulse.phase === "starting" ? "starting" : "looking for files";
}
function steps(batch) {
  const at = STEPS.indexOf(batch.step);
  return el("span", {class: "steps"}, ...STEPS.map((step, n) =>
    el("span", {class: n < at ? "done" : n === at ? "now" : null}, step)));
}
function lag(target) {
  if (target.pending_files) return span(target.lag_secs);
  // What a poll that failed would have found, nobody knows.
  return target.pulse.error || !target.poll ? "?" : "none";
}
// What the other daemon has saved of the same table.
function besideFact(beside, now, unit) {
  const name = unit === "commit" ? "Sources" : "Penguin";
  const old = beside.error ? [el("div", {class: "soft"}, `${beside.document ? `as of ${iso(beside.at)}` : "not known"}: ${beside.error}`)] : [];
  if (!beside.document) return [name, ...(old.length ? old : [el("span", {class: "soft"}, "looking …")])];
  if (!beside.document.length) return [name, el("span", {class: "soft"}, unit === "commit" ? "none has saved anything" : "has committed nothing yet")];
  return [name, ...old, ...beside.document.slice(0, 5).map(it => el("div", {}, unit === "commit" || beside.document.length > 1 ? `${it.name}: ` : "",
    it.odd ? `its state ${it.odd} · ` : unit === "commit" ? "" : it.version === null ? "no table yet · " : `version ${number(it.version)} · `,
    unit === "commit" ? "saved " : "committed ", ago(now, it.updated || it.saved),
    it.blocked_groups ? ` · ${plural(it.blocked_groups, "group")} blocked` : "")),
    beside.document.length > 5 ? `and ${number(beside.document.length - 5)} more` : ""];
}
// Of a table with the current row of each key.
function mergeFacts(it, now) {
  const part = it.starts_over ? "all changes will be merged again" : it.merged < 0 ? "nothing is merged yet" : `merged up to version ${number(it.merged)} of the changes`;
  const behind = it.version - it.merged;
  const found = [["Keys", `${number(it.rows)} · ${part}`, !it.waits_since ? ", up to date" : "",
    ...(it.waits_since ? [`, ${plural(behind, "version")} behind · oldest change `, ago(now, it.waits_since)] : [])]];
  if (it.outcomes) {
    const counts = Object.entries(it.outcomes).map(([name, n]) => `${number(n)} ${name.replace("_", " ")}`).join(", ");
    found.push(["Last merge", ago(now, it.updated), ` · ${counts} · ${Math.round(it.share * 100)} % rewritten`]);
  }
  return found;
}
function facts(target, now, unit) {
  const rows = [];
  const add = (name, ...what) => rows.push(el("dt", {}, name), el("dd", {}, ...what));
  add("Now", doing(target, now));
  for (const batch of target.running) {
    add("Batch", steps(batch), ` ${number(batch.files)} files, ${bytes(batch.bytes)}, for ${span(now - batch.started)}`);
  }
  add("Watermark", target.watermark ? el("span", {class: "mono"}, target.watermark) : el("span", {class: "soft"}, "none yet"));
  if (target.poll) {
    add("Last poll", ago(now, target.poll.at), ` · ${span(target.poll.secs)} · ${number(target.poll.files)} new · ${number(target.poll.requests)} LISTs`);
  } else {
    add("Last poll", el("span", {class: "soft"}, "none yet"));
  }
  if (target.apart && target.apart.files) {
    add("Left apart", `${number(target.apart.files)} files, the first `, el("span", {class: "mono"}, target.apart.first));
  }
  for (const it of target.cleaning || []) add("Cleaning", it.replace("cleaning: ", ""));
  for (const it of target.requests || []) {
    const counts = Object.entries(it.counts).map(([name, n]) => `${number(n)} ${name}`).join(", ");
    add("Request", el("span", {class: "mono"}, it.id), ` ${it.kind.replace("_", " ")}, ${it.state}${counts ? `: ${counts}` : ""} · last change `, ago(now, it.since));
  }
  if (target.totals) {
    add("In all", `${number(target.totals.files)} files, ${number(target.totals.rows)} rows, ${number(target.totals.quarantined)} given up`
      + (target.totals.bad_rows ? `, ${number(target.totals.bad_rows)} bad records` : ""));
  }
  if (target.version !== undefined) {
    add("Table", target.version === null ? "not there yet" : `version ${number(target.version)}`,
      target.committed_at ? " · last commit " : "", target.committed_at ? ago(now, target.committed_at) : "");
  }
  if (target.keyed) mergeFacts(target.keyed, now).forEach(fact => add(...fact));
  if (target.beside) add(...besideFact(target.beside, now, unit));
  add("Place", el("span", {class: "mono"}, target.place));
  return el("dl", {}, ...rows);
}
function done(target, now, unit) {
  if (!target.finished.length) return null;
  const head = el("tr", {}, ...[unit === "commit" ? "version" : "done", "files", "rows", "size", "took"].map(t => el("th", {class: t === "size" ? "roomy" : null}, t)));
  const line = it => el("tr", {title: it.id},
    el("td", {}, unit === "commit" ? `${it.id} · ` : "", when(it.at)), el("td", {}, compact(it.files)),
    el("td", {}, compact(it.rows)), el("td", {class: "roomy"}, bytes(it.bytes)), el("td", {}, span(it.secs)));
  const [latest, older] = [target.finished.slice(0, 3), target.finished.slice(3)];
  return el("div", {}, el("h3", {}, unit === "commit" ? "Last commits" : "Last batches"),
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...latest.map(line))),
    older.length ? fold(`${target.name} older`, false, null, number(older.length), "more", el("table", {}, el("tbody", {}, ...older.map(line)))) : null);
}
function letters(target, now, unit) {
  const items = target.letters.map(it => el("li", {}, el("div", {class: "mono"}, stories && isPlain(it.path) ? el("a", {href: storyLink(`${target.place}/${it.path}`)}, it.path) : it.path),
    el("div", {}, el("b", {}, `${it.stage}: `), it.error), el("div", {class: "soft"}, ago(now, it.at))));
  const title = unit === "commit" ? "quarantined lately" : `dead letter${items.length === 1 ? "" : "s"} lately`;
  return items.length ? fold(`${target.name} letters`, false, "warn", number(items.length), title, el("ul", {}, ...items)) : null;
}
function problems(target, now) {
  const items = target.problems.map(it => el("li", {}, el("b", {}, it.kind), it.times > 1 ? ` × ${number(it.times)}` : "",
    " ", el("span", {class: "soft"}, ago(now, it.at)), el("div", {}, it.error)));
  return items.length ? fold(`${target.name} problems`, Boolean(target.pulse.error), target.pulse.error ? "bad" : null,
    number(items.length), `kind${items.length === 1 ? "" : "s"} of error lately`, el("ul", {}, ...items)) : null;
}
function card(target, now, unit, shown = SPANS[""]) {
  const key = `${target.home || ""}${target.name}`;
  if (!cards.has(key)) {
    const parts = {node: el("section", {"aria-label": target.name}), above: el("div"), grid: unitGrid(target.name), below: el("div")};
    parts.node.append(parts.above, parts.grid.node, parts.below);
    cards.set(key, parts);
  }
  const {node, above, grid, below} = cards.get(key);
  const series = shown.cut(target), hour = target.minutes;
  node.className = `card ${target.level}${target.units && target.units.columns.length > 12 ? " wide" : ""}`;
  above.replaceChildren(
    el("div", {class: "head"}, el("h2", {}, el("a", {href: link(target.name, target.home)}, target.name)),
      el("span", {class: "pill", title: "Initial: nothing done yet. Active: the last poll found files. Idle: it found none."}, target.state),
      el("span", {class: `pill ${target.level}`}, WORDS[target.level])),
    el("div", {class: "figures"},
      figure(lag(target), "lag", target.lag_level === "ok" ? null : target.lag_level),
      figure(lag(target) === "?" ? "?" : compact(target.pending_files), "files waiting"),
      figure(unit === "commit" ? compact(total(hour.files)) : `${Math.round(target.utilization * 100)} %`,
        unit === "commit" ? "files committed" : "busy, 5 min"),
      figure(unit === "commit" ? (target.version === null ? "–" : number(target.version)) : compact(target.partitions),
        unit === "commit" ? "table version" : "partitions")),
    el("div", {class: "charts"}, chart("files", series.files, shown), chart("rows", series.rows, shown)),
    facts(target, now, unit));
  grid.show(target.units);
  below.replaceChildren(...[done(target, now, unit), letters(target, now, unit), problems(target, now)].filter(Boolean));
  return node;
}
