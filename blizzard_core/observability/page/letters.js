// Dead letters by their reason, with what replays them.
function letterGroups({groups, objects, read, complete, more_reasons: more}) {
  const items = groups.map(it => el("li", {},
    el("div", {}, el("b", {class: "warn"}, `${number(it.count)} × ${it.stage || "letter"}: `), it.error),
    el("div", {class: "soft"}, it.kind === "records" ? "records of " : "files: ",
      ...it.files.flatMap((uri, n) => [n ? ", " : "", el("span", {class: "mono"}, isPlain(uri) ? el("a", {href: storyLink(uri)}, uri.split("/").pop()) : uri)]),
      it.count > it.files.length ? " …" : "", it.newest ? ` · ${it.newest.slice(0, 19)}Z` : ""),
    it.sample ? el("pre", {class: "mono sample", tabindex: "0", "aria-label": "The beginning of one record"}, it.sample.line ? `line ${number(it.sample.line)}: ` : "", it.sample.text) : null,
    commandList(it.commands || [])));
  const notes = [complete ? "" : `Of the newest ${number(read)} of ${number(objects)} objects.`, more ? `${plural(more, "more reason")}.` : ""].filter(Boolean).join(" ");
  return [el("h3", {}, "Open dead letters, by reason"), el("ul", {class: "letters"}, ...items), ...(notes ? [el("p", {class: "soft"}, notes)] : [])];
}
