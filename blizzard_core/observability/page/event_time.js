// A query over event time, batch by batch: the watermark behind the newest event, what is open, what came late.
const isoMs = ms => iso(ms / 1000);
function course(points) {
  const newest = it => it.event_time.max_event_time_ms ?? it.event_time.watermark_ms, last = points[0];
  const low = Math.min(...points.map(it => it.event_time.watermark_ms)), high = Math.max(...points.map(newest));
  const step = 300 / Math.max(points.length, 20), height = value => 47 - (value - low) / Math.max(high - low, 1) * 44;
  const path = value => [...points].reverse().map((it, n) => {
    const x = 300 - (points.length - n) * step, y = height(value(it));
    return `${x},${y} ${x + step},${y}`;  // a watermark stays until the next batch
  }).join(" ");
  const svg = shape("svg", {viewBox: "0 0 300 50", preserveAspectRatio: "none", role: "img", "aria-label": "watermark and newest event, the newest batch on the right"});
  svg.append(shape("line", {x1: 0, x2: 300, y1: 49.5, y2: 49.5}),
    shape("polyline", {class: "newest", points: path(newest)}), shape("polyline", {class: "watermark", points: path(it => it.event_time.watermark_ms)}));
  const behind = (newest(last) - last.event_time.watermark_ms) / 1000;
  return el("div", {class: "chart course"}, el("div", {class: "label"}, el("span", {}, el("b", {class: "mark"}, "━ watermark "), isoMs(last.event_time.watermark_ms)),
    el("span", {}, el("b", {class: "mark newest"}, "┅ newest event "), `${span(behind)} ahead`)), svg,
    el("div", {class: "label"}, el("span", {}, iso(points[points.length - 1].at)), el("span", {}, iso(last.at))));
}
// How far rows lie behind the newest time of the batches before theirs: what a delay has to cover.
function lateness(settled) {
  const behind = settled[0].event_time.times.behind.map(([secs], n) => [secs, total(settled.map(it => it.event_time.times.behind[n][1]))]);
  const rows = total(behind.map(it => it[1])), top = Math.max(...behind.map(it => it[1]), 1), width = 300 / behind.length;
  const edge = n => behind[n][0] === null ? `more than ${span(behind[n - 1][0])}` : behind[n][0] ? `up to ${span(behind[n][0])}` : "not behind";
  const within = share => edge(behind.findIndex((_, n) => total(behind.slice(0, n + 1).map(it => it[1])) >= share * rows));
  const svg = shape("svg", {viewBox: "0 0 300 50", preserveAspectRatio: "none", role: "img", "aria-label": `rows by how far behind they came: ${behind.map(([, count], n) => `${edge(n)} ${number(count)}`).join(", ")}`});
  svg.append(shape("line", {x1: 0, x2: 300, y1: 49.5, y2: 49.5}));
  behind.forEach(([, count], n) => {
    const height = count ? Math.max(1.5, Math.log1p(count) / Math.log1p(top) * 47) : 0;  // a few late rows are seen beside millions
    const bar = shape("rect", {x: n * width, width: width * .8, y: 49.5 - height, height});
    bar.append(shape("title", {}, `${edge(n)}: ${plural(count, "row")}`));
    svg.append(bar);
  });
  return el("div", {class: "chart lateness"}, el("div", {class: "label"}, el("span", {}, el("b", {}, compact(rows)), " rows by how far behind they came (logarithmic)"),
    el("span", {}, `99 % ${within(.99)}, 99.9 % ${within(.999)}`)), svg,
    el("div", {class: "label"}, el("span", {}, edge(0)), el("span", {}, edge(behind.length - 1))));
}
function operators(line) {
  return el("div", {}, el("h3", {}, "Operators of the query, in the last batch"), sheet([["operator", "left"], ["rows of state"], ["bytes"], ["updated"], ["removed"], ["dropped as late"]],
    line.operators.map(it => [it.name, number(it.state_rows), bytes(it.state_bytes), number(it.updated_rows), number(it.removed_rows), number(it.dropped_rows)]), "Operators"));
}
function courses(batches) {
  const settled = batches.filter(it => it.event_time), moved = settled.filter(it => it.event_time.watermark_ms);
  if (!settled.length) return [];
  const open = bars("rows of state: open windows and keys", settled, it => it.event_time.state_rows, settled[0].event_time.state_rows);
  const kept = settled.some(it => it.event_time.state_rows);  // where a watermark is only watched nothing is
  const timed = settled.filter(it => it.event_time.times);
  return [...(moved.length ? [course(moved)] : []), ...(timed.length ? [lateness(timed)] : []), ...(kept ? [open] : []), bars(`late rows in ${plural(settled.length, "batch").replace("batchs", "batches")}`, settled, it => it.event_time.late_rows)];
}
