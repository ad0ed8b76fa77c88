// What is wrong, worst first; what many targets say is said once.
const SHOWN_NOTICES = 4, SHOWN_NAMES = 3;

function alike(item) {
  const text = item.text.replace(item.target, "").replace(/\S+:\/\/\S+/g, "URI").replace(/\d[\d.,]*/g, "#");
  return [item.level, item.remedy, text].join("\n");
}
function grouped(targets) {
  const groups = new Map();
  for (const target of targets) for (const item of target.notices) {
    const whose = {...item, target: target.name}, key = alike(whose);
    if (groups.has(key)) groups.get(key).names.push(target); else groups.set(key, {...whose, names: [target]});
  }
  return [...groups.values()].sort((a, b) => RANK[a.level] - RANK[b.level] || b.names.length - a.names.length);
}
function named(names) {
  const links = names.slice(0, SHOWN_NAMES).flatMap(({name, home}, n) => [n ? ", " : "", el("a", {href: link(name, home)}, name)]);
  return el("b", {}, ...links, names.length > SHOWN_NAMES ? ` and ${number(names.length - SHOWN_NAMES)} more` : "");
}
function notice(item) {
  return el("div", {class: `notice ${item.level}`}, item.names ? named(item.names) : null, item.text,
    el("span", {class: "remedy"}, item.remedy));
}
let told = "";
function tell(level, text, ...nodes) {
  const box = document.getElementById("verdict");
  const now = [level, text, ...nodes.map(node => node.textContent)].join("\n");
  if (now === told) return;  // who listens hears it once
  told = now;
  box.className = level;
  box.replaceChildren(text, ...nodes);
}
function verdict(status) {
  const all = [...status.targets, ...(status.tables || [])];
  const count = level => all.filter(t => t.level === level).length;
  const many = all.length, units = status.tables && status.tables.length ? "sources and tables" : `${status.unit}s`;
  const some = n => many === 1 ? `The one ${status.unit} is` : `${n} of ${number(many)} ${many === 1 ? status.unit : units}`;
  const bad = count("bad"), warn = count("warn");
  const troubles = status.troubles || [];
  const text = troubles.length ? "Penguin does not answer" : !many ? `There is no ${status.unit} in the configuration`
    : bad ? `${some(bad)} failing` + (warn ? `, ${warn} to look at` : "")
    : warn ? `${some(warn)} to look at`
    : many === 1 ? `The one ${status.unit} is well` : `All ${many} ${units} are well`;
  const groups = [...troubles, ...grouped(all)].map(notice);
  const more = groups.slice(SHOWN_NOTICES);
  const shown = groups.slice(0, SHOWN_NOTICES);
  tell(bad || troubles.length ? "bad" : warn ? "warn" : "ok", text, ...(shown.length ? [el("div", {class: "notices"}, ...shown)] : []),
    ...(more.length ? [fold("notices", false, null, number(more.length), "more", ...more)] : []));
  document.title = `${bad || troubles.length ? "✖ " : warn ? "! " : ""}${status.title}`;
}
