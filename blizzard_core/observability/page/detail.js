// One source or table: what it does now, what it did before this daemon began, and what to run.
function bars(title, points, value = it => it.rows, figure = total(points.map(value))) {
  const top = Math.max(...points.map(value), 1), width = 300 / Math.max(points.length, 20);
  const svg = shape("svg", {viewBox: "0 0 300 50", preserveAspectRatio: "none", role: "img", "aria-label": `${title}, the newest on the right`});
  svg.append(shape("line", {x1: 0, x2: 300, y1: 49.5, y2: 49.5}));
  [...points].reverse().forEach((it, n) => {
    const height = value(it) ? Math.max(1.5, value(it) / top * 47) : 0;
    const bar = shape("rect", {x: 300 - (points.length - n) * width, width: width * .8, y: 49.5 - height, height});
    bar.append(shape("title", {}, `${iso(it.at)}: ${number(value(it))} rows`));
    svg.append(bar);
  });
  return el("div", {class: "chart rows"}, el("div", {class: "label"}, el("span", {}, el("b", {}, compact(figure)), ` ${title}`),
    el("span", {}, `most ${compact(top)}`)), svg,
    el("div", {class: "label"}, el("span", {}, points.length ? iso(points[points.length - 1].at) : ""), el("span", {}, points.length ? iso(points[0].at) : "")));
}
function landing(batch) {
  if (!batch.outputs) return "no rows";
  if (batch.missing) return el("span", {class: "warn"}, batch.missing === batch.outputs ? "none yet" : `${number(batch.missing)} of ${number(batch.outputs)} missing`);
  if (batch.missing === null) return batch.versions.length ? `${batch.versions.map(number).join(", ")} and older` : "older";
  return batch.versions.length > 3 ? `${number(batch.versions[0])} … ${number(batch.versions[batch.versions.length - 1])}` : batch.versions.map(number).join(", ");
}
function batchSheet(batches) {
  return sheet([["settled", "left"], ["files"], ["failed", "roomy"], ["rows"], ["size", "roomy"], ["took", "roomy"], ["version"]],
    batches.map(it => it.odd ? [when(it.at), "", "", "", "", "", el("span", {class: "warn"}, it.odd)] : [when(it.at), number(it.files), it.failed ? el("b", {class: "warn"}, number(it.failed)) : "", number(it.rows), bytes(it.bytes), span(it.secs), landing(it)]), "Batches");
}
function commitSheet(commits) {
  return sheet([["committed", "left"], ["version"], ["by", "left roomy"], ["files"], ["rows"], ["removed", "roomy"], ["size", "roomy"]],
    commits.map(it => [when(it.at), number(it.version), it.ours || it.operation || "?", number(it.files) + (it.whole ? "" : "+"), number(it.rows) + (it.whole ? "" : "+"),
      it.removed ? number(it.removed) : "", bytes(it.bytes)]), "Commits");
}
function failures(files) {
  return el("ul", {}, ...files.map(it => el("li", {}, el("div", {class: "mono"}, isPlain(it.uri) ? el("a", {href: storyLink(it.uri)}, it.path) : it.path),
    el("div", {}, el("b", {}, `${it.outcome}${it.stage ? `, ${it.stage}` : ""}: `), it.error), el("div", {class: "soft"}, when(it.at)))));
}
function pastNodes(past, target) {
  const soft = text => el("p", {class: "soft"}, text);
  if (!past) return [];
  if (past.at === null) return [soft(past.error || "Reading the journal and the log …")];
  const nodes = past.error ? [el("p", {class: "warn"}, `Not read again: ${past.error}`)] : [];
  if (!past.document) return nodes;
  const {batches: all, commits, failed} = past.document, charts = [];
  const batches = all && all.filter(it => !it.odd);
  if (batches && batches.length) charts.push(bars(`rows in ${plural(batches.length, "batch").replace("batchs", "batches")}`, batches));
  if (commits.length) charts.push(bars(`rows in ${plural(commits.length, "commit")}`, commits));
  if (past.document.letters && past.document.letters.groups.length) nodes.push(...letterGroups(past.document.letters));
  if (failed && failed.length) nodes.push(el("h3", {}, "Other files that were not ingested"), failures(failed));
  if (past.document.partitions) nodes.push(...partitionNodes(past.document.partitions, target));
  nodes.push(el("div", {class: "charts"}, ...charts, ...courses(batches || [])));
  const settled = (batches || []).find(it => it.event_time?.operators.length);
  if (settled) nodes.push(operators(settled.event_time));
  const sheets = [];
  if (batches) sheets.push(el("div", {}, el("h3", {}, "Batches, from the journal"), all.length ? batchSheet(all) : soft("None in the last thirty days.")));
  sheets.push(el("div", {}, el("h3", {}, "Commits, from the table’s log"), commits.length ? commitSheet(commits) : soft("There is no table yet.")));
  return [...nodes, el("div", {class: "sheets"}, ...sheets), soft(`Read from the store at ${iso(past.at)}; a restart loses nothing of it.`)];
}
function blockedGroups(it) {
  const known = Object.entries(it.blocked), more = it.blocked_groups - known.length;
  return known.length ? known.map(([source, why]) => `${source}: ${why}`).join("; ") + (more ? `; and ${number(more)} more` : "") : "none";
}
function besideNodes(target, now, unit) {
  const beside = target.beside;
  if (!beside || beside.at === null || !beside.document || !beside.document.length) return [];
  const mine = unit === "commit";
  const heads = mine ? [["source", "left"], ["state", "left roomy"], ["saved"], ["watermark", "left roomy"], ["batches under way", "roomy"], ["rows in all"], ["writer", "left roomy"]]
    : [["Penguin", "left"], ["state", "left roomy"], ["committed"], ["watermark", "left roomy"], ["version"], ["commits", "roomy"], ["blocked groups"]];
  const rows = beside.document.map(it => [it.name, it.odd ? el("span", {class: "warn"}, it.odd) : it.state || "?", ago(now, it.updated || it.saved), el("span", {class: "mono"}, it.watermark || "none"),
    ...(mine ? [number(it.in_flight), it.rows === null ? "?" : number(it.rows), it.host ? `${it.host}, pid ${it.pid}` : "?"]
      : [it.version === null ? "–" : number(it.version), it.commits === null ? "?" : number(it.commits), blockedGroups(it)])]);
  return [el("h3", {}, mine ? "Sources that feed it, as they saved it" : "Penguin, as it saved it"), sheet(heads, rows, mine ? "Sources" : "Penguin")];
}
function detail(status, past) {
  const [target] = status.targets, unit = status.daemon === "penguin" ? "commit" : "batch", box = document.getElementById("one");
  const level = target.level;
  tell(level, `${target.name}: ${{ok: "well", warn: "to look at", bad: "failing"}[level]}`, ...target.notices.map(notice));
  document.title = `${SIGNS[level] ? `${SIGNS[level]} ` : ""}${target.name} · ${status.title}`;
  if (!getSelection().isCollapsed) return;  // whoever is copying must not lose it
  const parts = box.dataset.name === target.name ? [...box.children] : [0, 0, 0, 0].map(() => el("section"));
  const [top, run, beside, history] = parts;
  crumb(`All ${status.unit}s`, target.name);
  placed(top, [card(target, status.now, unit)]);
  const kept = (node, nodes) => {  // what has not changed stays as it is, and keeps its place and focus
    const drawn = nodes.map(it => it.outerHTML).join("");
    if (node.dataset.drawn === drawn) return;
    node.dataset.drawn = drawn;
    node.replaceChildren(...nodes);
  };
  kept(beside, besideNodes(target, status.now, unit));
  const week = el("div", {class: "charts"}, chart("files", target.hours.files, SPANS.week), chart("rows", target.hours.rows, SPANS.week));
  kept(history, past ? [el("h2", {}, "History"), week, ...pastNodes(past, target)] : []);
  kept(run, [el("h2", {}, "Commands"), commandList(target.commands)]);
  run.className = "panel";
  for (const node of [beside, history]) node.className = "panel whole";
  beside.hidden = !beside.childElementCount;
  box.dataset.name = target.name;
  box.className = "two";
  placed(box, parts);
}
