// All targets: as cards while they are few, else a line for each.
const CARDS = 12, CARDS_AT_MOST = 60;
const LEVELS = [["", "All"], ["bad", "Failing"], ["warn", "To look at"], ["busy", "Working"]];
const tiles = new Map();

function isShown(target, wanted) {
  if (wanted.level === "busy" ? !target.running.length : wanted.level && target.level !== wanted.level) return false;
  const text = `${target.name} ${target.place} ${target.notices.map(it => it.text).join(" ")}`.toLowerCase();
  return wanted.q.toLowerCase().split(/\s+/).every(word => text.includes(word));
}
function viewOf(status, wanted) {
  if (status.targets.length > CARDS_AT_MOST) return "compact";
  return wanted.view || (status.targets.length > CARDS ? "compact" : "cards");
}
function chips(box, entries, chosen, choose) {
  const nodes = entries.map(([value, text, count]) => {
    const node = el("button", {type: "button", "aria-pressed": String(value === chosen)}, text, count === undefined ? null : el("b", {}, ` ${number(count)}`));
    node.addEventListener("click", () => choose(value));
    return node;
  });
  const drawn = nodes.map(node => node.outerHTML).join("");
  if (box.dataset.drawn === drawn) return;  // who is about to press one must not lose it
  box.dataset.drawn = drawn;
  box.replaceChildren(...nodes);
}
function bar(status, wanted) {
  const many = status.targets.length;
  document.getElementById("bar").hidden = !status.stories && many < 4;
  const find = document.getElementById("find");
  find.placeholder = !status.stories ? `Find a ${status.unit}` : many > 3 ? `Find a ${status.unit}, or paste a file’s URI` : "Paste a file’s URI and press Enter";
  const count = {"": many, busy: status.targets.filter(t => t.running.length).length};
  for (const level of ["bad", "warn"]) count[level] = status.targets.filter(t => t.level === level).length;
  const levels = many > 3 ? LEVELS.filter(([value]) => !value || count[value] || wanted.level === value) : [];
  chips(document.getElementById("levels"), levels.map(([value, text]) => [value, text, count[value]]), wanted.level, level => go({level}));
  const views = many > 3 && many <= CARDS_AT_MOST ? [["cards", "Cards"], ["compact", "Compact"]] : [];
  chips(document.getElementById("views"), views, viewOf(status, wanted), view => go({view}));
}
// A line keeps its node, so that whoever points at it or goes there by keyboard keeps it.
function tile(target) {
  if (!tiles.has(target.name)) {
    const parts = {mark: el("span", {class: "mark"}), name: el("span", {class: "name"}, target.name), lag: el("span", {class: "lag"}), rows: el("span", {class: "rows"})};
    parts.node = el("a", {href: link(target.name), title: target.name}, parts.mark, parts.name, parts.lag, parts.rows);
    tiles.set(target.name, parts);
  }
  const {node, mark, lag: late, rows} = tiles.get(target.name);
  node.className = `tile ${target.level}${target.running.length ? " busy" : ""}`;
  mark.textContent = SIGNS[target.level] || (target.running.length ? "▸" : "");
  mark.title = target.running.length ? "working on a batch" : "";
  const waits = lag(target);
  late.textContent = waits === "none" ? "" : waits;
  rows.textContent = target.hour.rows ? compact(target.hour.rows) : "–";
  return node;
}
function placed(box, nodes) {
  if (nodes.length !== box.children.length || nodes.some((node, n) => node !== box.children[n])) box.replaceChildren(...nodes);
}
function overview(status, wanted) {
  bar(status, wanted);
  verdict(status);
  const unit = status.daemon === "penguin" ? "commit" : "batch";
  const box = document.getElementById("targets"), view = viewOf(status, wanted);
  const shown = status.targets.filter(target => isShown(target, wanted))
    .sort((a, b) => RANK[a.level] - RANK[b.level] || a.name.localeCompare(b.name, undefined, {numeric: true}));
  box.className = view;
  const none = el("p", {class: "soft"}, `No ${status.unit} like that.`);
  if (view === "cards") {
    // Whoever is copying a path must not lose it.
    if (getSelection().isCollapsed) placed(box, shown.length || !status.targets.length ? shown.map(target => card(target, status.now, unit)) : [none]);
    return;
  }
  const heads = el("div", {class: "key"}, `Each line: what waits the longest, and rows ${unit === "commit" ? "committed" : "ingested"} in the last hour. `,
    el("span", {}, "▸ working on a batch, ! to look at, ✖ failing"));
  let key = box.querySelector(".key");
  if (!key || key.textContent !== heads.textContent) key = heads;
  placed(box, [key, ...(shown.length ? shown.map(tile) : [none])]);
}
