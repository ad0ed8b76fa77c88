"use strict";
const SVG = "http://www.w3.org/2000/svg";
// Text is only ever set as text: what files are called never becomes markup.
function el(tag, options, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (value === null || value === undefined) continue;
    if (name === "class") node.className = value; else node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
const number = value => typeof value === "number" ? new Intl.NumberFormat("en").format(value) : "?";
const compact = value => value < 10000 ? number(Math.round(value))
  : new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1}).format(value);
function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let n = 0;
  while (value >= 1000 && n < units.length - 1) { value /= 1000; n += 1; }
  return `${n && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[n]}`;
}
function span(secs) {
  if (secs < 1) return secs > 0 ? `${Math.round(secs * 1000)} ms` : "0 s";
  if (secs < 10) return `${secs.toFixed(1)} s`;
  if (secs < 120) return `${Math.round(secs)} s`;
  if (secs < 7200) return `${Math.round(secs / 60)} min`;
  if (secs < 172800) return `${Math.round(secs / 3600)} h`;
  return `${Math.round(secs / 86400)} days`;
}
// Times are written as in the log, to the second, so that they can be looked for there.
// Others may have written them: one that no calendar has is said to be that, and ends nothing.
function iso(secs) {
  const at = new Date(typeof secs === "number" ? secs * 1000 : NaN);
  return Number.isNaN(at.getTime()) ? "no date" : at.toISOString().replace(/\.\d+Z/, "Z");
}
function when(at) {
  return el("time", {class: "mono", datetime: iso(at)}, iso(at));
}
function ago(now, at) {
  return el("time", {datetime: iso(at), title: iso(at)}, `${span(Math.max(0, Math.round(now - at)))} ago`);
}
const total = list => list.reduce((a, b) => a + b, 0);

function shape(tag, options, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(options)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}
const RANK = {bad: 0, warn: 1, ok: 2};
const WORDS = {ok: "OK", warn: "LOOK", bad: "FAILING"};
const SIGNS = {ok: "", warn: "!", bad: "✖"};
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
// A target of the other daemon has its own page below `home`.
const link = (name, home) => `${home || ""}#/target/${name.split("/").map(encodeURIComponent).join("/")}`;
const storyLink = uri => `#/file/${encodeURIComponent(uri)}`;
// What was escaped to be shown is no longer the name of a file.
const isPlain = text => !text.includes("\\");

// Copies without the clipboard API, too: browsers have that on https and localhost only.
function copied(node, text) {
  const range = document.createRange(), selection = getSelection();
  range.selectNodeContents(node);
  selection.removeAllRanges();
  selection.addRange(range);
  document.addEventListener("copy", event => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  }, {once: true});
  const done = document.execCommand("copy");
  selection.removeAllRanges();
  return done;
}
function commandList(commands) {
  return el("div", {class: "commands"}, ...commands.map(({why, command}) => {
    // It breaks between words only: a line that ends in the middle of an option misleads.
    const code = el("code", {}, ...command.split(" ").flatMap((word, n) => [n ? " " : "", el("span", {}, word)]));
    const button = el("button", {type: "button", "aria-label": `Copy: ${why}`}, "Copy");
    button.addEventListener("click", () => {
      button.textContent = copied(code, command) ? "Copied" : "Select and copy";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return el("div", {class: "command"}, el("span", {class: "why"}, why), el("div", {class: "line"}, code, button));
  }));
}
// Penguin's page below Blizzard's has its overview there.
let overviewPlace = "#/";
function crumb(all, here) {
  const box = document.getElementById("crumb");
  box.hidden = false;
  box.replaceChildren(el("a", {href: overviewPlace}, all), ` › ${here}`);
}
function sheet(heads, rows, label) {
  const cell = (tag, value, n) => el(tag, {class: heads[n][1] || null}, value);
  return el("div", {class: "sheet", tabindex: "0", role: "region", "aria-label": label}, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map(([head], n) => cell("th", head, n)))),
    el("tbody", {}, ...rows.map(row => el("tr", {}, ...row.map((value, n) => cell("td", value, n)))))));
}
