// The newest partitions by the worst state of their files; a cell leads to the explanation of one.
const FILE_STATES = {rejected: ["failing", "✖"], "dead-lettered": ["ahead", "!"], late: ["redo", "~"], missing: ["retired", "?"], waiting: ["incomplete", "+"], ingested: ["done", ""]};
function withWaiting(partitions, target) {
  const found = new Map(partitions.list.map(it => [it.name, it.states])), complete = new Set(partitions.list.filter(it => it.complete).map(it => it.name));
  for (const it of target.waiting || []) found.set(it.name, {...found.get(it.name), waiting: {files: it.files, uri: `${target.place}/${it.first}`}});
  return [...found].map(([name, states]) => ({name, states, complete: complete.has(name)})).sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}
function stateLink(state, it, text, options) {
  return isPlain(it.uri) ? el("a", {...options, href: storyLink(it.uri)}, text) : el("span", options, text);
}
function partitionNodes(partitions, target) {
  const all = withWaiting(partitions, target), states = Object.keys(FILE_STATES);
  if (!all.length) return [];
  const words = it => states.filter(state => it.states[state]).map(state => `${number(it.states[state].files)} ${state}`).join(", ");
  const counts = Object.fromEntries(states.map(state => [state, all.filter(it => states.find(each => it.states[each]) === state).length]));
  const legend = el("div", {class: "legend"}, ...states.filter(state => counts[state] || state === "ingested").map(state =>
    el("span", {}, el("i", {class: `cell ${FILE_STATES[state][0]}`, "aria-hidden": "true"}, FILE_STATES[state][1]), ` ${state} `, el("b", {}, number(counts[state])))));
  const cells = el("ul", {class: "cells"}, ...all.map(it => {
    const worst = states.find(state => it.states[state]), [look, sign] = FILE_STATES[worst], told = `${it.name || "(no partition)"}: ${words(it)}${it.complete ? ", complete" : ""}`;
    return el("li", {}, stateLink(worst, it.states[worst], sign || (it.complete ? "✓" : ""), {class: `cell ${look}`, title: told, "aria-label": told}));
  }));
  const shown = states.filter(state => all.some(it => it.states[state]));
  const rows = all.slice().reverse().map(it => [`${it.name || "(no partition)"}${it.complete ? " ✓" : ""}`, ...shown.map(state => it.states[state] ? stateLink(state, it.states[state], number(it.states[state].files), {}) : "")]);
  const table = fold(`${target.name} partitions`, false, null, number(all.length), `partition${all.length === 1 ? "" : "s"} as a table; each number leads to the explanation of a file`,
    sheet([["partition", "left"], ...shown.map(state => [state])], rows, "Partitions"));
  return [el("h3", {}, "Partitions of the newest batches, by the worst state of their files"), legend, cells, table,
    ...(partitions.more ? [el("p", {class: "soft"}, `${number(partitions.more)} earlier ones are not drawn.`)] : [])];
}
