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
function courses(batches) {
  const settled = batches.filter(it => it.event_time), moved = settled.filter(it => it.event_time.watermark_ms);
  if (!settled.length) return [];
  const open = bars("rows of state: open windows and keys", settled, it => it.event_time.state_rows, settled[0].event_time.state_rows);
  const kept = settled.some(it => it.event_time.state_rows);  // where a watermark is only watched nothing is
  return [...(moved.length ? [course(moved)] : []), ...(kept ? [open] : []), bars(`late rows in ${plural(settled.length, "batch").replace("batchs", "batches")}`, settled, it => it.event_time.late_rows)];
}
