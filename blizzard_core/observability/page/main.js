// Where one is stands behind the # of the address, so it can be sent to somebody else.
const REFRESH_MS = 5000, STORY_MS = 700;
let answered = null, turn = 0, timer = null, status = null, stories = false;

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  const asked = new URLSearchParams(query || "");
  return {kind, name: rest.map(part => { try { return decodeURIComponent(part); } catch { return part; } }).join("/"),
    q: asked.get("q") || "", level: asked.get("level") || "", view: asked.get("view") || ""};
}
function go(change) {
  const at = {...place(), ...change}, query = new URLSearchParams();
  for (const key of ["q", "level", "view"]) if (at[key]) query.set(key, at[key]);
  const text = query.toString();
  history.replaceState(null, "", `#/${text ? `?${text}` : ""}`);
  if (status && !at.kind) overview(status, place());
  turn += 1;  // an answer under way was asked for another place: it must neither draw nor put off the next
  again(0);
}
async function asked(path) {
  const response = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(10000)});
  const document_ = await response.json();
  if (!response.ok) return {failed: response.status, error: document_.error || `answer ${response.status}`};
  return document_;
}
function titled(found) {
  found.unit = found.daemon === "penguin" ? "table" : "source";
  found.title = found.daemon === "penguin" ? "Penguin" : "Blizzard";
  stories = found.stories;
  document.getElementById("title").textContent = found.title;
  document.getElementById("facts").replaceChildren(`${found.version} · up ${span(found.now - found.started)} · `, when(found.now));
  return found;
}
async function drawOverview(at, mine) {
  const found = titled(await asked("overview.json"));
  if (found.targets.length && viewOf(found, at) === "cards") {
    const whole = new Map((await asked("status.json")).targets.map(target => [target.name, target]));
    found.targets = found.targets.map(target => ({...whole.get(target.name), ...target}));
  }
  if (mine !== turn) return REFRESH_MS;
  status = found;
  overview(status, at);
  return REFRESH_MS;
}
async function drawDetail(at, mine) {
  const path = `targets/${at.name.split("/").map(encodeURIComponent).join("/")}`;
  const [found, past] = await Promise.all([asked(`${path}/status.json`), asked(`${path}/past.json`)]);
  if (mine !== turn) return REFRESH_MS;
  if (found.failed) {
    tell("warn", `There is no ${at.name} here`, el("div", {class: "notice"}, el("a", {href: "#/"}, "To the overview")));
    document.getElementById("one").replaceChildren();
    return REFRESH_MS;
  }
  detail(titled(found), past.failed ? null : past);
  return past.at === null && !past.failed ? STORY_MS : REFRESH_MS;
}
async function drawStory(at, mine) {
  const found = await asked(`story.json?uri=${encodeURIComponent(at.name)}`);
  if (mine !== turn) return REFRESH_MS;
  stories = true;
  document.getElementById("bar").hidden = false;
  if (!status) titled(await asked("overview.json"));
  const waits = found.failed === 429 || found.at === null;
  storyShown(at.name, waits ? null : found);
  return waits ? STORY_MS : null;
}
function shownFor(at) {
  const many = !at.kind;
  if (many) document.getElementById("crumb").hidden = true;
  document.getElementById("targets").hidden = !many;
  document.getElementById("one").hidden = many;
  if (at.kind === "target") document.getElementById("bar").hidden = true;
}
async function refresh() {
  const at = place(), mine = ++turn;
  let next = REFRESH_MS;
  try {
    shownFor(at);
    next = await (at.kind === "target" ? drawDetail : at.kind === "file" ? drawStory : drawOverview)(at, mine);
    answered = new Date();
    for (const id of ["targets", "one"]) document.getElementById(id).classList.remove("lost");
  } catch (error) {
    if (mine !== turn) return;
    const since = answered ? ` since ${iso(answered / 1000)}` : "";
    tell("bad", `No answer from the daemon${since}. What is below is old. Is it running? Look at its log.`);
    document.title = "✖ no answer";
    for (const id of ["targets", "one"]) document.getElementById(id).classList.add("lost");
  }
  if (mine === turn && next !== null) again(next);
}
function again(ms) {
  clearTimeout(timer);
  timer = setTimeout(refresh, ms);
}
const find = document.getElementById("find");
find.value = place().kind === "file" ? place().name : place().q;
const isUri = text => /^([a-z0-9+.-]+:\/\/|\.{0,2}\/)/i.test(text.trim());
find.addEventListener("input", () => { if (!place().kind && !isUri(find.value)) go({q: find.value}); });
document.getElementById("bar").addEventListener("submit", event => {
  event.preventDefault();
  if (stories && isUri(find.value)) location.hash = storyLink(find.value.trim());
  else go({kind: "", q: find.value});
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && document.activeElement === document.body) { event.preventDefault(); find.focus(); }
});
addEventListener("hashchange", () => {
  if (!place().kind) find.value = place().q;
  scrollTo(0, 0);
  refresh();
});
refresh();
