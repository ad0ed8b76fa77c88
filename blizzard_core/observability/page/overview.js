// All targets: as cards while they are few, else a line for each.
const CARDS = 12, CARDS_AT_MOST = 60, SAVED_ROWS = 200;
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
  document.getElementById("bar").hidden = !many;
  document.getElementById("find").hidden = !status.stories && many < 4;
  const find = document.getElementById("find");
  find.placeholder = !status.stories ? `Find a ${status.unit}` : many > 3 ? `Find a ${status.unit}, or paste a file’s URI` : "Paste a file’s URI and press Enter";
  const count = {"": many, busy: status.targets.filter(t => t.running.length).length};
  for (const level of ["bad", "warn"]) count[level] = status.targets.filter(t => t.level === level).length;
  const levels = many > 3 ? LEVELS.filter(([value]) => !value || count[value] || wanted.level === value) : [];
  chips(document.getElementById("levels"), levels.map(([value, text]) => [value, text, count[value]]), wanted.level, level => go({level}));
  const views = many > 3 && many <= CARDS_AT_MOST ? [["cards", "Cards"], ["compact", "Compact"]] : [];
  const spans = [["", "1 h"], ["day", "24 h"], ["week", "7 d"]];
  chips(document.getElementById("spans"), many ? spans : [], wanted.span, span => go({span}));
  chips(document.getElementById("views"), views, viewOf(status, wanted), view => go({view}));
}
// A line keeps its node, so that whoever points at it or goes there by keyboard keeps it.
function tile(target, span) {
  const key = `${target.home || ""}${target.name}`;
  if (!tiles.has(key)) {
    const parts = {mark: el("span", {class: "mark"}), name: el("span", {class: "name"}, target.name), lag: el("span", {class: "lag"}), rows: el("span", {class: "rows"})};
    parts.node = el("a", {href: link(target.name, target.home), title: target.name}, parts.mark, parts.name, parts.lag, parts.rows);
    tiles.set(key, parts);
  }
  const {node, mark, lag: late, rows} = tiles.get(key);
  node.className = `tile ${target.level}${target.running.length ? " busy" : ""}`;
  mark.textContent = SIGNS[target.level] || (target.running.length ? "▸" : "");
  mark.title = target.running.length ? "working on a batch" : "";
  const waits = lag(target);
  late.textContent = waits === "none" ? "" : waits;
  const done = target[span.key].rows;
  rows.textContent = done ? compact(done) : "–";
  return node;
}
function placed(box, nodes) {
  if (nodes.length !== box.children.length || nodes.some((node, n) => node !== box.children[n])) box.replaceChildren(...nodes);
}
function overview(status, wanted) {
  bar(status, wanted);
  verdict(status);
  targetList(document.getElementById("targets"), status.targets, status, wanted, status.daemon === "penguin" ? "commit" : "batch");
  otherHalf(status, wanted);
}
// The tables below the sources if both daemons have one page; else what the other daemon has saved.
function otherHalf(status, wanted) {
  const section = document.getElementById("others"), [head, box] = section.children;
  if (status.tables) {
    section.hidden = !status.tables.length;
    head.textContent = "Tables";
    targetList(box, status.tables, {...status, targets: status.tables, unit: "table"}, wanted, "commit");
    return;
  }
  const rows = savedRows(status);
  section.hidden = !rows.length;
  head.textContent = status.daemon === "penguin" ? "Sources, as Blizzard saved them" : "Tables, as Penguin saved them";
  box.className = "panel";
  const heads = [[status.daemon === "penguin" ? "source" : "table", "left"], ["daemon", "left"], [status.daemon === "penguin" ? "saved" : "committed"],
    ...(status.daemon === "penguin" ? [["rows in all"]] : [["version"], ["groups blocked", "roomy"]])];
  const drawn = sheet(heads, rows, head.textContent);
  if (box.dataset.drawn === drawn.outerHTML) return;
  box.dataset.drawn = drawn.outerHTML;
  box.replaceChildren(drawn);
}
const LIVES = {running: "runs", stopped: "does not run", silent: "silent", unknown: "not seen"};
function savedRows(status) {
  const found = new Map();
  for (const target of status.targets) for (const it of target.beside && target.beside.document || []) {
    // Several sources of a table show the same state of it.
    const key = `${it.name}\n${it.saved}`;
    if (!found.has(key)) found.set(key, [it, target]);
  }
  return [...found.values()].slice(0, SAVED_ROWS).map(([it, target]) => {
    const state = it.life ? it.life.state : "unknown";
    return [el("a", {href: link(target.name)}, it.name), el("span", {class: state === "stopped" || state === "silent" ? "warn" : "soft"}, LIVES[state] || state),
      ago(status.now, it.updated || it.saved), ...(status.daemon === "penguin" ? [it.rows === null ? "?" : number(it.rows)]
        : [it.version === null ? "–" : number(it.version), it.blocked_groups ? el("span", {class: "warn"}, number(it.blocked_groups)) : ""])];
  });
}
function targetList(box, targets, status, wanted, unit) {
  const view = viewOf(status, wanted), span = SPANS[wanted.span] || SPANS[""];
  const shown = targets.filter(target => isShown(target, wanted))
    .sort((a, b) => RANK[a.level] - RANK[b.level] || a.name.localeCompare(b.name, undefined, {numeric: true}));
  box.className = view;
  const none = el("p", {class: "soft"}, `No ${status.unit} like that.`);
  if (view === "cards") {
    // Whoever is copying a path must not lose it.
    if (getSelection().isCollapsed) placed(box, shown.length || !targets.length ? shown.map(target => card(target, status.now, unit, span)) : [none]);
    return;
  }
  const heads = el("div", {class: "key"}, `Each line: what waits the longest, and rows ${unit === "commit" ? "committed" : "ingested"} in the ${span.last}. `,
    el("span", {}, "▸ working on a batch, ! to look at, ✖ failing"));
  let key = box.querySelector(".key");
  if (!key || key.textContent !== heads.textContent) key = heads;
  placed(box, [key, ...(shown.length ? shown.map(target => tile(target, span)) : [none])]);
}
