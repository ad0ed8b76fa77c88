// The grid of work units: by time and value, one path and one text for each state.
// The states of work units by the letter of their cells: a word and a sign, for who sees no colours.
const UNITS = {f: ["failing", "!"], h: ["ahead", ">"], n: ["new", "+"], i: ["incomplete", "/"], r: ["redo", "R"],
  g: ["grace", "~"], a: ["abstinent", "-"], d: ["done", ""], x: ["retired", "x"]};
const CELL = 16, AXIS = 18;
// One path and one text for each state, so thousands of units are a few nodes.
function unitCells(at, letter) {
  const [word, sign] = UNITS[letter];
  const nodes = [shape("path", {class: `unit ${word}`,
    d: at.map(([x, y]) => `M${x + 1.5} ${y + 1.5}h13v13h-13z`).join("")})];
  if (sign) nodes.push(shape("text", {class: `sign ${word}`, x: at.map(([x]) => x + 8).join(" "),
    y: at.map(([, y]) => y + 12).join(" ")}, sign.repeat(at.length)));
  return nodes;
}
// Days, months or years, whichever there is room for.
function unitAxis(columns) {
  const marks = [16, 10, 7, 4].map(width => {
    const starts = columns.map((_, x) => x).filter(x => !x || columns[x][0].slice(0, width) !== columns[x - 1][0].slice(0, width));
    return starts.map(x => [x * CELL, columns[x][0].slice(0, width)]);
  });
  const fits = list => list.every(([x], n) => n < 2 || x - list[n - 1][0] >= 8 * list[n][1].length);
  let behind = -1;
  return (marks.find(fits) || marks[3]).filter(([x, text]) => {
    if (x < behind) return false;
    behind = x + 7 * text.length;
    return true;
  }).map(([x, text]) => shape("text", {class: "axis", x, y: 12}, text));
}
function unitPlot(units) {
  const svg = shape("svg", {width: Math.max(units.columns.length * CELL, 80), height: AXIS + units.rows.length * CELL + 1, "aria-hidden": "true"});
  const places = {};
  units.rows.forEach((row, y) => [...row.cells].forEach((letter, x) => {
    if (UNITS[letter]) (places[letter] ||= []).push([x * CELL, AXIS + y * CELL]);
  }));
  svg.append(...unitAxis(units.columns), ...Object.entries(places).flatMap(([letter, at]) => unitCells(at, letter)));
  return svg;
}
function unitLegend(units) {
  const entry = (letter, count, note) => {
    const key = shape("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"});
    key.append(...unitCells([[0, 0]], letter));
    return el("span", {}, key, `${UNITS[letter][0]}${note || ""} `, el("b", {}, number(count)));
  };
  const shown = Object.keys(UNITS).filter(letter => letter === "d" || units.counts[UNITS[letter][0]]);
  return el("div", {class: "legend"}, ...shown.map(letter => entry(letter, units.counts[UNITS[letter][0]])),
    units.retired ? entry("x", units.retired, " values") : null);
}
function unitTold(units, {row, column}) {
  const [label, from, to] = units.columns[column];
  const name = units.rows[row].name;
  const word = (UNITS[units.rows[row].cells[column]] || ["no unit"])[0];
  const note = units.notes.find(it => it.row === row && it.column === column);
  const single = units.by === "partition";
  const parts = [el("b", {}, word), " ", el("span", {class: "mono"}, single ? `${from}/${name}` : `${label} · ${name}`)];
  if (note && !single) {
    parts.push(": ", Object.entries(note.units).map(([state, count]) => `${number(count)} ${state}`).join(", "),
      "; the worst is ", el("span", {class: "mono"}, note.key));
  }
  const high = note ? note.high : word === "done" || (single && word === "grace") ? to : null;
  if (word !== "no unit" && word !== "retired" && (note || !"failing ahead incomplete".includes(word))) {
    parts.push(high ? ` · read up to ${high}` : " · not read yet");
  }
  if (note && note.low) parts.push(` · next from ${note.low}`);
  if (note && note.failures) parts.push(` · failed ${number(note.failures)} times, next try ${note.next_try || "at once"}`);
  if (note && note.error) parts.push(el("div", {}, note.error));
  return parts;
}
function unitFailures(name, units) {
  const bad = units.notes.filter(note => note.state === "failing").slice(0, 20);
  return fold(`${name} units`, false, "warn", number(units.counts.failing), `unit${units.counts.failing === 1 ? "" : "s"} failing`,
    ...(bad.length ? [el("ul", {}, ...bad.map(note => el("li", {}, el("div", {class: "mono"}, note.key),
      el("div", {}, note.error || ""), el("div", {class: "soft"},
        `failed ${number(note.failures)} times, next try ${note.next_try || "at once"}, read up to ${note.high || "nothing"}`))))] : []));
}
// The grid stays where it is while the card around it is drawn anew: whoever moves in it goes on.
function unitGrid(name) {
  const legend = el("div"), names = el("div", {class: "names", "aria-hidden": "true"});
  const frame = el("div", {class: "grid", tabindex: "0", role: "application", "aria-label": `Work units of ${name}, by time and value. Arrow keys go from unit to unit.`}, names);
  const told = el("div", {class: "told", role: "status"}), more = el("div", {class: "soft"}), failures = el("div");
  const node = el("div", {hidden: ""}, el("h3", {}, "Units by time and value"), legend, frame, told, more, failures);
  let units = null, drawn = "", svg = null, at = null;
  const cursor = shape("rect", {class: "cursor", width: 16, height: 16});
  const go = (row, column, scroll) => {
    if (!units || !units.rows.length || !units.columns.length) return;
    const bound = (n, list) => Math.max(0, Math.min(n, list.length - 1));
    const next = {row: bound(row, units.rows), column: bound(column, units.columns)};
    if (at && !scroll && at.row === next.row && at.column === next.column) return;
    at = next;
    cursor.setAttribute("x", at.column * CELL);
    cursor.setAttribute("y", AXIS + at.row * CELL);
    svg.append(cursor);
    told.replaceChildren(...unitTold(units, at));
    if (!scroll) return;
    const left = at.column * CELL, top = AXIS + at.row * CELL, room = frame.clientWidth - names.offsetWidth;
    frame.scrollLeft = Math.max(left + 2 * CELL - room, Math.min(frame.scrollLeft, left));
    frame.scrollTop = Math.max(top + 2 * CELL - frame.clientHeight, Math.min(frame.scrollTop, top - AXIS));
  };
  const point = event => {
    if (!svg || !svg.contains(event.target)) return;
    const box = svg.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - AXIS) / CELL), column = Math.floor((event.clientX - box.left) / CELL);
    if (row >= 0 && row < units.rows.length && column < units.columns.length) go(row, column);
  };
  frame.addEventListener("pointermove", point);
  frame.addEventListener("pointerdown", point);
  frame.addEventListener("focus", () => { if (!at && units) go(0, units.columns.length - 1, true); });
  frame.addEventListener("keydown", event => {
    if (!at) return;
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9]};
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    go(at.row + step[0], at.column + step[1], true);
  });
  const show = found => {
    const text = JSON.stringify(found || null);
    if (text === drawn) return;
    const first = !units;
    const stays = at && units && [units.rows[at.row].name, units.columns[at.column][1]];
    [units, drawn] = [found || null, text];
    node.hidden = !units;
    if (!units) return;
    if (svg) svg.remove();
    svg = unitPlot(units);
    frame.append(svg);
    names.replaceChildren(...units.rows.map(row => el("div", {title: row.name}, row.name === "{}" ? "all" : row.name)));
    legend.replaceChildren(unitLegend(units));
    more.replaceChildren([
      units.by === "partition" ? "" : `A column is a ${units.by}, and shows the worst of its units.`,
      units.more ? `And ${number(units.more)} values more.` : "",
      units.earlier ? `${number(units.earlier)} columns before these are not drawn.` : "",
      units.rows.length && units.columns.length ? "" : "There is no unit."].filter(Boolean).join(" "));
    failures.replaceChildren(...[unitFailures(name, units)].filter(Boolean));
    if (first) {
      told.textContent = "Point at a unit, or go to the grid and use the arrow keys.";
      requestAnimationFrame(() => { frame.scrollLeft = frame.scrollWidth; });
    } else if (stays) {
      const row = units.rows.findIndex(it => it.name === stays[0]), column = units.columns.findIndex(it => it[1] === stays[1]);
      at = null;
      if (row >= 0 && column >= 0) go(row, column);
      else told.replaceChildren();
    }
  };
  return {node, show};
}
