// What became of one file, as `blizzard explain` tells it.
const VERDICTS = {ingested: "ok", pending: "", late: "warn", quarantined: "bad", refused: "bad", missing: "warn", removed: "warn"};
const OUTPUTS = 20;

function storyFacts(story) {
  const rows = [];
  const add = (name, ...what) => rows.push(el("dt", {}, name), el("dd", {}, ...what));
  const mono = text => el("span", {class: "mono"}, text);
  add("File", mono(story.uri), el("div", {class: "soft"}, story.file ? [bytes(story.file.size), ", modified "].join("") : story.source ? "does not exist" : "",
    story.file ? when(story.file.modified_ts) : ""));
  if (story.source) add("Source", el("a", {href: link(story.source)}, story.source));
  if (story.partition !== null) add("Partition", mono(story.partition || "(none)"));
  const compared = story.compared_with;
  if (compared) add("Compared with", "watermark ", mono(compared.watermark || "none"), ", scans start at ", compared.scan_start ? mono(compared.scan_start) : "the beginning");
  const batch = story.batch;
  if (batch) {
    add("Batch", mono(batch.batch), el("div", {}, when(batch.started_ts), " to ", when(batch.finished_ts), batch.attempt > 1 ? `, attempt ${batch.attempt}` : "",
      batch.replay ? ", a replay" : batch.backfill ? `, backfill ${batch.backfill}` : ""));
    add("Rows", number(batch.rows), batch.bad_rows ? `, and ${plural(batch.bad_rows, "bad record")}` : "");
  }
  const outputs = story.outputs || [];
  if (outputs.length) {
    add("Parquet", el("ul", {}, ...outputs.slice(0, OUTPUTS).map(it => el("li", {}, mono(it.path),
      el("div", {class: it.refusal ? "bad" : "soft"}, `${plural(it.rows, "row")}, ${it.status_text}`,
        it.refusal ? `: ${it.refusal}` : "")))), story.more_outputs ? `and ${number(story.more_outputs)} more` : "");
  }
  if (story.untaken && story.untaken.length) add("No column", "for ", mono(story.untaken.join(", ")), el("div", {class: "soft"}, "fields that are left out; blizzard schema --diff has what to write for them"));
  if (story.added_since && story.added_since.length) add("Added since", mono(story.added_since.join(", ")), el("div", {class: "soft"}, "columns since it was ingested; blizzard backfill --replace takes it again"));
  const letter = story.dead_letter;
  if (letter) add("Letter", letter.error ? el("div", {}, el("b", {}, `${letter.stage}: `), letter.error) : "", mono(letter.object), letter.timestamp ? el("div", {class: "soft"}, when(Date.parse(letter.timestamp) / 1000)) : "");
  if (story.pending && story.pending.until_ts) add("Waits until", when(story.pending.until_ts));
  if (story.late) add("Late files", story.late.reason);
  return el("dl", {}, ...rows);
}
function storyShown(uri, found) {
  const box = document.getElementById("one");
  crumb("All sources", "a file’s story");
  const parts = [], story = found && found.document;
  if (found && found.failed === 429) tell("", `${found.error[0].toUpperCase() + found.error.slice(1)} …`);
  else if (found && found.error) tell("warn", "No answer", el("div", {class: "notice warn"}, found.error));
  else if (!story) tell("", "Looking through checkpoint, journal and log …");
  else {
    const level = VERDICTS[story.verdict] ?? "";
    tell(level, story.verdict[0].toUpperCase() + story.verdict.slice(1), el("div", {class: "reason"}, story.reason));
    parts.push(el("section", {class: "panel"}, storyFacts(story)),
      el("section", {class: "panel"}, el("h2", {}, "Commands"), commandList(story.commands)),
      el("p", {class: "soft"}, `As of ${iso(found.at)}.`));
  }
  if (!story) parts.push(el("section", {class: "panel"}, el("div", {class: "mono"}, uri)));
  document.title = story ? `${story.verdict} · ${uri.split("/").pop()}` : "A file’s story";
  box.dataset.name = box.className = "";
  box.replaceChildren(...parts);
}
