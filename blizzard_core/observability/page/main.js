// Where one is stands behind the # of the address, so it can be sent to somebody else.
const REFRESH_MS = 5000, STORY_MS = 700, RELOAD_MS = 60000;
let made = null, answered = null, turn = 0, timer = null, status = null, stories = false;

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  const asked = new URLSearchParams(query || "");
  return {kind, name: rest.map(part => { try { return decodeURIComponent(part); } catch { return part; } }).join("/"),
    q: asked.get("q") || "", level: asked.get("level") || "", view: asked.get("view") || "", span: asked.get("span") || ""};
}
function go(change) {
  const at = {...place(), ...change}, query = new URLSearchParams();
  for (const key of ["q", "level", "view", "span"]) if (at[key]) query.set(key, at[key]);
  const text = query.toString();
  history.replaceState(null, "", `#/${text ? `?${text}` : ""}`);
  if (status && !at.kind) overview(status, place());
  turn += 1;  // an answer under way was asked for another place: it must neither draw nor put off the next
  again(0);
}
// That nobody answers, that somebody answers something else, and that an answer cannot be drawn, are three things.
class Silence extends Error {}
class Refusal extends Error {}
async function asked(path) {
  let response, text;
  try {
    response = await fetch(path, {cache: "no-store", signal: AbortSignal.timeout(10000)});
    text = await response.text();
  } catch {
    throw new Silence();
  }
  let found = null;
  try { found = JSON.parse(text); } catch { /* somebody else's answer, or an error's */ }
  // Behind Blizzard's page, Penguin's has its overview there.
  if (response.headers.get("X-Served-By") === "blizzard" && location.pathname.endsWith("/penguin/")) overviewPlace = "../";
  if (response.ok && found) return found;
  return {failed: response.status, error: found && found.error || (response.ok ? "no answer of a daemon" : `answer ${response.status}`)};
}
function answeredWell(found) {
  if (found.failed) throw new Refusal(found.error);
  if (!Array.isArray(found.targets)) throw new Refusal("no answer of a daemon");
  return found;
}
function titled(found) {
  // Another release draws its own page; not twice a minute, should two releases answer in turn.
  if (made && made !== found.page && performance.now() > RELOAD_MS) location.reload();
  made = found.page;
  answered = found.now;
  found.unit = found.daemon === "penguin" ? "table" : "source";
  found.title = found.daemon === "penguin" ? "Penguin" : "Blizzard";
  stories = found.stories;
  document.getElementById("title").textContent = found.title;
  document.getElementById("facts").replaceChildren(`${found.version} · up ${span(found.now - found.started)} · `, when(found.now));
  return found;
}
async function drawOverview(at, mine) {
  const found = titled(answeredWell(await asked("overview.json")));
  if (found.targets.length && viewOf(found, at) === "cards") {
    const whole = new Map(answeredWell(await asked("status.json")).targets.map(target => [target.name, target]));
    // Between the two a daemon with other targets may have taken its place.
    found.targets = found.targets.filter(target => whole.has(target.name)).map(target => ({...whole.get(target.name), ...target}));
  }
  if (overviewPlace !== "#/") {
    location.replace(overviewPlace);
    return null;
  }
  if (found.tables_too) await tablesOf(found, at);
  if (mine !== turn) return REFRESH_MS;
  status = found;
  overview(status, at);
  return REFRESH_MS;
}
async function tablesOf(found, at) {
  const tables = await asked("penguin/overview.json");
  found.title = "Blizzard + Penguin";
  document.getElementById("title").textContent = found.title;
  found.tables = Array.isArray(tables.targets) ? tables.targets : [];
  if (!Array.isArray(tables.targets)) {
    found.troubles = [{level: "bad", text: tables.error, remedy: "Nothing is committed until it runs again; nothing is lost."}];
  } else if (viewOf({targets: found.tables}, at) === "cards" && found.tables.length) {
    const whole = new Map(answeredWell(await asked("penguin/status.json")).targets.map(target => [target.name, target]));
    found.tables = found.tables.filter(target => whole.has(target.name)).map(target => ({...whole.get(target.name), ...target}));
  }
  found.tables = found.tables.map(target => ({...target, home: "penguin/"}));
}
async function drawDetail(at, mine) {
  const path = `targets/${at.name.split("/").map(encodeURIComponent).join("/")}`;
  const [found, past] = await Promise.all([asked(`${path}/status.json`), asked(`${path}/past.json`)]);
  if (mine !== turn) return REFRESH_MS;
  if (found.failed === 404) {
    const box = document.getElementById("one");
    tell("warn", `There is no ${at.name} here`, el("div", {class: "notice"}, el("a", {href: "#/"}, "To the overview")));
    document.title = `There is no ${at.name} here`;
    box.dataset.name = "";
    box.replaceChildren();
    return REFRESH_MS;
  }
  detail(titled(answeredWell(found)), past.failed === 404 ? null : past.failed ? {at: null, error: past.error} : past);
  return past.at === null && !past.failed ? STORY_MS : REFRESH_MS;
}
async function drawStory(at, mine) {
  const found = await asked(`story.json?uri=${encodeURIComponent(at.name)}`);
  if (mine !== turn) return REFRESH_MS;
  stories = true;
  document.getElementById("bar").hidden = false;
  if (!status) titled(answeredWell(await asked("overview.json")));
  if (mine !== turn) return REFRESH_MS;
  const waits = found.failed === 429 || found.at === null;
  storyShown(at.name, found.at === null && !found.error ? null : found);
  return waits ? STORY_MS : null;
}
function shownFor(at) {
  const many = !at.kind;
  if (many) document.getElementById("crumb").hidden = true;
  document.getElementById("targets").hidden = !many;
  if (!many) document.getElementById("others").hidden = true;
  document.getElementById("one").hidden = many;
  if (at.kind === "target") document.getElementById("bar").hidden = true;
}
async function refresh() {
  const at = place(), mine = ++turn;
  let next = REFRESH_MS;
  try {
    shownFor(at);
    next = await (at.kind === "target" ? drawDetail : at.kind === "file" ? drawStory : drawOverview)(at, mine);
    for (const id of ["targets", "others", "one"]) document.getElementById(id).classList.remove("lost");
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Silence) {
      const since = answered ? ` since ${iso(answered)}` : "";
      tell("bad", `No answer from the daemon${since}. What is below is old. Is it running? Look at its log.`);
      document.title = "✖ no answer";
    } else if (error instanceof Refusal) {
      tell("bad", `What answers here does not show how things stand: ${error.message}. What is below is old. Look at the daemon’s log.`);
      document.title = "✖ no status";
    } else {
      tell("bad", `The daemon has answered, and this page cannot draw it (${error.message}). What is below may be old; the same facts: `, el("a", {href: "status.json"}, "status.json"));
      document.title = "✖ not drawn";
    }
    for (const id of ["targets", "others", "one"]) document.getElementById(id).classList.add("lost");
  }
  if (mine === turn && next !== null) again(next);
}
function again(ms) {
  clearTimeout(timer);
  timer = setTimeout(refresh, ms);
}
const find = document.getElementById("find");
find.value = place().kind === "file" ? place().name : place().q;
const isUri = text => /^([a-z0-9+.-]+:\/\/|file:\/|arn:|\.{0,2}\/)/i.test(text.trim());
// A path that is no name of a target: the daemon knows where its sources are.
const isPath = text => /[/.]/.test(text) && !(status && status.targets.some(target => isShown(target, {q: text, level: ""})));
find.addEventListener("input", () => { if (!place().kind && !isUri(find.value)) go({q: find.value}); });
document.getElementById("bar").addEventListener("submit", event => {
  event.preventDefault();
  if (stories && (isUri(find.value) || isPath(find.value))) location.hash = storyLink(find.value.trim());
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
