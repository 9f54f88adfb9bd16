// The status page: asks the server what it does, and shows it.
//
// Comes in: the JSON of /api/status and /api/grids/NAME, and what a person presses and types. Goes out: text and bars in the elements and templates of index.html,
// POST requests that cancel a query or a job, and grids for tiles.js to draw. It never makes markup out of what the server says (names, SQL and errors of others are
// text), never asks another place than its own server, never rebuilds what did not change (focus and selected text stay), and keeps the token in this tab only.

import { byId, bytes, counted, cut, drawAgain, drawingIn, forgetRemoved, isolated, lostTiles, lostWords, measured, setAttribute, setText, whereWords, whole } from "./tiles.js";

const POLL_MS = 1000;
const HIDDEN_POLL_MS = 15_000;
const LONGEST_WAIT_MS = 15_000;
const TIMEOUT_MS = 10_000;
/** Tiles that move are asked for again after this time at the earliest. */
const TILES_MS = 5000;
/** A cancel that did nothing may be asked for again after this time. */
const CANCEL_MS = 10_000;
/** A row that moved can be clicked after this time: a finger is on its way to what was there before. */
const SETTLE_MS = 600;
const MOST_ROWS = 200;
const OPEN_GRIDS = 6;
const ENDED = ["done", "failed", "cancelled"];
const NOT_KNOWN = "not known";

const page = { token: kept(), status: null, answeredAt: null, failures: 0, polling: false, entering: false, timer: 0, turn: Promise.resolve() };

// ---- The server ---------------------------------------------------------------------------------------------------------------------------------------------

/** An answer that is not the wanted one; `code` 0 says that there was no answer. */
class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function ask(method, path) {
  const headers = { "X-Partgrid": "page" };
  if (page.token) headers.Authorization = `Bearer ${page.token}`;
  const options = { method, headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) };
  const answer = await fetch(path, options).catch(() => { throw new Refused(0, "no answer"); });
  const text = await answer.text().catch(() => { throw new Refused(0, "the answer broke off"); });
  if (!answer.ok) throw new Refused(answer.status, parsed(text)?.error ?? `the server answered ${answer.status}`);
  if (answer.status === 204) return null;
  const body = parsed(text);
  if (!body) throw new Refused(0, "the answer is not JSON");
  return body;
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

function kept() {
  try { return sessionStorage.getItem("partgrid-token") ?? ""; } catch { return ""; }
}

function keep(token) {
  page.token = token;
  try { token ? sessionStorage.setItem("partgrid-token", token) : sessionStorage.removeItem("partgrid-token"); } catch { /* then only until the page is left */ }
}

// ---- Asking again and again ---------------------------------------------------------------------------------------------------------------------------------

async function poll() {
  if (page.polling) return;
  page.polling = true;
  clearTimeout(page.timer);
  await ask("GET", "/api/status").then(answered).catch(failed);
  page.polling = false;
  if (!page.entering) page.timer = setTimeout(poll, waitMs());
}

function waitMs() {
  const wait = document.hidden ? HIDDEN_POLL_MS : POLL_MS;
  return Math.max(wait, Math.min(LONGEST_WAIT_MS, page.failures && POLL_MS * 2 ** (page.failures - 1)));
}

function answered(status) {
  const back = page.failures > 0;
  page.failures = 0;
  page.answeredAt = new Date();
  // What was said of the token is not so any more.
  if (!byId("entry").hidden) setText(byId("news"), "");
  hide(byId("entry"), true);
  hide(byId("status"), false);
  hide(byId("forget"), !page.token);
  notice(noticeOf(status));
  const news = page.status ? changes(page.status, status) : [];
  page.status = status;
  show(status);
  announce(back ? ["The server is back", ...news] : news);
}

function noticeOf(status) {
  if (status.server.state === "stopping") return "The server is stopping.";
  page.version ??= status.server.version;
  if (page.version !== status.server.version) return `The server is now version ${status.server.version}: load this page again.`;
  return [
    status.server.durable === false ? "The catalog cannot be written now: the server refuses what it would have to keep in it." : "",
    status.server.damaged > 0 ? `${counted(status.server.damaged, "table")} of the catalog ${status.server.damaged === 1 ? "is" : "are"} damaged, and left out until repaired.` : "",
  ].filter(Boolean).join(" ");
}

function failed(error) {
  if (error.code === 403) return enter(`This is not allowed: ${error.message}`);
  if (error.code === 401) return enter(page.token ? `The server did not take this token: ${error.message}` : "");
  page.failures += 1;
  const since = page.answeredAt ? ` What is shown is of ${clock(page.answeredAt)}.` : "";
  if (error.code > 0) notice(`The server refused: ${error.message}.${since}`);
  else if (error instanceof Refused) notice(`The server is away (${error.message}); it is asked again every few seconds.${since}`);
  else notice(`This page cannot show what the server says: ${error.message}.`);
  if (page.failures === 1 && error.code === 0) announce(["The server is away"]);
}

function notice(message) {
  setText(byId("notice-text"), message);
  hide(byId("notice"), !message);
  hide(byId("retry"), page.failures === 0);
}

/** Shows the form for the token instead of the status, until a token is sent. Nothing that the last caller saw stays in the page. */
function enter(message) {
  keep("");
  Object.assign(page, { status: null, entering: true });
  for (const list of Object.values(lists)) list.show([]);
  for (const id of ["server-uri", "server-facts", "caller", "grids-incomplete"]) setText(byId(id), "");
  for (const id of ["status", "forget", "notice"]) hide(byId(id), true);
  hide(byId("entry"), false);
  setText(byId("entry-error"), message);
  announce([message || "The server asks for a token"]);
  if ([document.body, byId("content")].includes(document.activeElement)) byId("token").focus();
}

// ---- What is told of changes --------------------------------------------------------------------------------------------------------------------------------

/** Sentences on what matters: ends of jobs, failures, grids and members that came or went. Numbers that move are not news. */
function changes(before, after) {
  const was = (items, key) => new Map(items.map((item) => [item[key], item]));
  const [jobs, queries] = [was(before.jobs, "id"), was(before.queries, "id")];
  const ended = (item, olds, states) => olds.has(item.id) && olds.get(item.id).state !== item.state && states.includes(item.state);
  return [
    ...after.jobs.filter((job) => ended(job, jobs, ENDED)).map((job) => `Load ${isolated(job.name)} ${job.state}`),
    ...after.queries.filter((query) => ended(query, queries, ["failed", "cancelled"])).map((query) => `Query ${query.state}: ${isolated(query.sql)}`),
    ...cameAndWent("Grid", before.grids, after.grids, "name"),
    ...membersNews(before, after),
    ...(after.server.state !== before.server.state && after.server.state === "stopping" ? ["The server is stopping"] : []),
    ...(after.server.durable !== before.server.durable ? [after.server.durable ? "The catalog can be written again" : "The catalog cannot be written"] : []),
  ];
}

function cameAndWent(what, before, after, key) {
  const [olds, news] = [new Set(before.map((item) => item[key])), new Set(after.map((item) => item[key]))];
  const only = (these, those, said) => [...these].filter((name) => !those.has(name)).map((name) => `${what} ${isolated(name)} ${said}`);
  return [...only(news, olds, "came"), ...only(olds, news, "went")];
}

/** Who came and went; of those who are listed all the same, that they are away. */
function membersNews(before, after) {
  const uris = (items) => new Set(items.map(({ uri }) => uri));
  const [were, are] = [uris(before.away), uris(after.away)];
  const gone = [...are].filter((uri) => !were.has(uri)).map((uri) => `Member ${isolated(uri)} is away`);
  const others = before.members.filter(({ uri }) => !are.has(uri));
  return [...gone, ...cameAndWent("Member", others, after.members, "uri")];
}

function announce(sentences) {
  if (!sentences.length) return;
  const more = sentences.length > 3 ? `; ${counted(sentences.length - 3, "further change")}` : "";
  setText(byId("news"), `${clock(new Date())}  ${sentences.slice(0, 3).join("; ")}${more}`);
}

// ---- Words and numbers --------------------------------------------------------------------------------------------------------------------------------------

function duration(seconds) {
  if (seconds < 0.1) return measured(Math.ceil(1000 * seconds), "ms");
  if (seconds < 60) return measured(seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds), "s");
  const two = (large, size, small, part) => `${measured(Math.floor(seconds / size), large)} ${measured(String(Math.floor((seconds % size) / part)).padStart(2, "0"), small)}`;
  if (seconds < 3600) return two("min", 60, "s", 1);
  return seconds < 86_400 ? two("h", 3600, "min", 60) : two("d", 86_400, "h", 3600);
}

function percentOf({ state, progress }) {
  return state === "running" && progress !== null && `${Math.floor(progress * 100)} %`;
}

function clock(date) {
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString("en-GB");
}

function moment(text) {
  const date = new Date(text);
  return date.toDateString() === new Date().toDateString() ? clock(date) : `${date.toLocaleDateString("en-CA")} ${clock(date)}`;
}

// ---- Elements -----------------------------------------------------------------------------------------------------------------------------------------------

/** Hides and shows. Focus that would be hidden goes to the beginning of the content. */
function hide(node, hidden) {
  if (hidden && node.contains(document.activeElement)) byId("content").focus();
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** A copy of a template, and its parts by name. */
function cloned(id) {
  const node = byId(id).content.firstElementChild.cloneNode(true);
  const part = {};
  for (const named of node.querySelectorAll("[data-part]")) part[named.dataset.part] = named;
  return { node, part };
}

/** The views of things that come and go: one for each key, made once, moved only when the order changed. */
class List {
  constructor(name, keyOf, make, count = (items) => whole.format(items.length)) {
    Object.assign(this, { name, keyOf, make, count, views: new Map(), parent: byId(name) });
  }

  show(items) {
    const views = new Map();
    for (const item of items.slice(0, MOST_ROWS)) {
      const key = this.keyOf(item);
      const view = this.views.get(key) ?? this.make(views.size);
      view.update(item, views.size);
      views.set(key, view);
    }
    for (const [key, view] of this.views) if (!views.has(key)) this.remove(view.node);
    this.views = views;
    this.place();
    this.frame(items.length, this.count(items));
  }

  /** From the end on: when one of many that run has ended, only its own row moves. A row takes the focus along, also where browsers lose it. */
  place() {
    const focused = document.activeElement;
    let next = null;
    for (const { node } of [...this.views.values()].reverse()) {
      const isThere = node.parentNode === this.parent && node.nextElementSibling === next;
      if (!isThere && node.isConnected && this.parent.moveBefore) this.parent.moveBefore(node, next);
      else if (!isThere) this.parent.insertBefore(node, next);
      next = node;
    }
    if (focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  /** Focus goes to the heading: on the next button, a key pressed twice would cancel what nobody meant. */
  remove(node) {
    if (node.contains(document.activeElement)) byId(`${this.name}-title`).focus();
    node.remove();
  }

  frame(count, words) {
    setText(byId(`${this.name}-count`), count ? words : "");
    hide(byId(`${this.name}-empty`), count > 0);
    hide(byId(`${this.name}-all`), count === 0);
    setText(byId(`${this.name}-more`), count > MOST_ROWS ? `${whole.format(count - MOST_ROWS)} more are not shown.` : "");
  }
}

// ---- Queries and jobs ---------------------------------------------------------------------------------------------------------------------------------------

function showState(node, state) {
  setText(node, state);
  setAttribute(node, "class", `state ${/^[a-z]+$/.test(state) ? state : ""}`);
}

function showProgress(part, item, label, words) {
  hide(part.bar, !["running", "kept"].includes(item.state));
  setAttribute(part.bar, "aria-label", label);
  if (item.progress === null) part.bar.removeAttribute("value");
  else setAttribute(part.bar, "value", item.progress);
  setText(part.progress, words.filter(Boolean).join(", "));
}

/**
 * A cancel button for the thing that the function is told of. One that has the focus is not hidden under it. One whose row only just came to its place takes no
 * click: that was meant for the row that was there before.
 */
function cancelling(kind, part) {
  const state = { path: "", askedAt: -CANCEL_MS, can: false, what: "", place: null, movedAt: -SETTLE_MS };
  const look = () => {
    const asked = state.can && performance.now() - state.askedAt < CANCEL_MS;
    setText(part.cancel, asked ? "Cancelling…" : "Cancel");
    setAttribute(part.cancel, "aria-label", `${asked ? "Cancelling" : "Cancel"} ${state.what}`);
    setAttribute(part.cancel, "aria-disabled", asked || !state.can);
    hide(part.cancel, !state.can && part.cancel !== document.activeElement);
  };
  part.cancel.addEventListener("click", async ({ detail: isPointer }) => {
    if (part.cancel.getAttribute("aria-disabled") === "true" || (isPointer && performance.now() - state.movedAt < SETTLE_MS)) return;
    state.askedAt = performance.now();
    setText(part.refusal, "");
    look();
    announce([`Cancelling ${state.what}`]);
    await ask("POST", state.path).then(poll, (error) => {
      state.askedAt = -CANCEL_MS;
      setText(part.refusal, `Not cancelled: ${error.message}`);
      announce([`${state.what} was not cancelled: ${error.message}`]);
      look();
      if (error.code === 401) failed(error);
    });
  });
  return (item, what, place) => {
    if (place !== (state.place ?? place)) state.movedAt = performance.now();
    Object.assign(state, { place, path: `/api/${kind}/${encodeURIComponent(item.id)}/cancel`, can: item.can_cancel, what });
    if (!item.can_cancel) setText(part.refusal, "");
    look();
  };
}

/** A row of a query or a job; `describe` shows what only its kind has, and gives its name and the words beside the bar. */
function workView(kind, template, describe) {
  const { node, part } = cloned(template);
  const showCancel = cancelling(kind, part);
  const update = (item, place) => {
    const { name, words } = describe(part, item);
    showState(part.state, item.state);
    showProgress(part, item, `Progress of ${name}`, words);
    setText(part.time, duration(item.elapsed_seconds));
    setText(part.rows, whole.format(item.rows));
    setText(part.caller, item.caller);
    showCancel(item, name, place);
  };
  return { node, update };
}

function describeQuery(part, query) {
  const short = cut(query.sql, 200);
  setText(part.short, short);
  hide(part.whole, short === query.sql);
  if (!part.whole.hidden) setText(part.sql, query.sql);
  setText(part.memory, bytes(query.memory_bytes));
  const tiles = query.tiles_total ? `${whole.format(query.tiles_done)} of ${counted(query.tiles_total, "tile")}` : "";
  return { name: `query ${isolated(query.sql)}`, words: [tiles, percentOf(query)] };
}

/**
 * First what has not ended, by id, a hexadecimal number that grows: a row keeps its place while those above it run. Then what has, as the server lists it: what
 * ended last comes first.
 */
function runningFirst(queries) {
  const older = (one, other) => one.id.length - other.id.length || (one.id < other.id ? -1 : 1);
  const hasEnded = ({ state }) => ENDED.includes(state);
  return [...queries.filter((query) => !hasEnded(query)).sort(older), ...queries.filter(hasEnded)];
}

function describeJob(part, job) {
  for (const name of ["kind", "name", "message"]) setText(part[name], job[name]);
  const done = job.total_bytes ? `${bytes(job.bytes)} of ${bytes(job.total_bytes)}` : bytes(job.bytes);
  const running = job.state === "running";
  const arranging = running && job.arranged_rows < job.rows_to_arrange;
  const arranged = arranging && `sorting: ${whole.format(job.arranged_rows)} of ${counted(job.rows_to_arrange, "row")}`;
  const left = running && !arranging && job.remaining_seconds > 0 && `${duration(job.remaining_seconds)} left`;
  const keeping = running && job.progress === null && job.total_bytes > 0 && "all read, being finished";
  return { name: `load ${isolated(job.name)}`, words: [arranged || done, percentOf(job), left, keeping] };
}

// ---- Server, memory, members, errors ------------------------------------------------------------------------------------------------------------------------

function showServer({ server, caller }) {
  setText(byId("server-uri"), server.uri);
  const catalog = server.catalog ? `catalog ${server.catalog}` : "no catalog";
  const facts = [server.state, `version ${server.version}`, `${server.host}, process ${server.pid}`, counted(server.threads, "thread"), catalog, `up ${duration(server.uptime_seconds)}`];
  setText(byId("server-facts"), facts.join(" · "));
  setText(byId("caller"), `You are ${isolated(caller.name)}, with scope ${caller.scope}.`);
}

function showMemory(memory) {
  const limit = memory.query_limit_bytes;
  setText(byId("memory-grids"), bytes(memory.grid_bytes));
  setText(byId("memory-copied"), bytes(memory.copied_bytes));
  setText(byId("memory-queries"), limit ? `${bytes(memory.query_bytes)} of ${bytes(limit)}` : bytes(memory.query_bytes));
  setText(byId("memory-incoming"), bytes(memory.incoming_bytes));
  setText(byId("memory-spilled"), `${bytes(memory.spilled_bytes)} of ${bytes(memory.spill_limit_bytes)}`);
  setText(byId("memory-resident"), memory.resident_bytes === null ? NOT_KNOWN : bytes(memory.resident_bytes));
  const meter = byId("memory-meter");
  hide(meter, !limit);
  for (const [name, value] of [["max", limit || 1], ["high", 0.8 * (limit || 1)], ["value", memory.query_bytes]]) setAttribute(meter, name, value);
}

/** A row whose parts are the fields of the same names; `more` shows what is said otherwise. */
function plainView(template, names, more) {
  const { node, part } = cloned(template);
  const update = (item) => {
    for (const name of names) setText(part[name], item[name]);
    more(part, item);
  };
  return { node, update };
}

/** Who is listed, and of whom nothing is known but why it is no member; that is told to administrators. */
function awayMember({ uri, reason }) {
  return { uri, state: "away", host: NOT_KNOWN, pid: NOT_KNOWN, version: NOT_KNOWN, reason: reason ?? "" };
}

function countMembers(items) {
  const away = items.filter(({ state }) => state === "away").length;
  const there = whole.format(items.length - away);
  return away ? `${there}, ${whole.format(away)} away` : there;
}

/** One server alone says all that above the table. A hidden text describes nothing. */
function showMembersHelp(isCluster) {
  hide(byId("members-help"), !isCluster);
  if (isCluster) setAttribute(byId("members-all"), "aria-describedby", "members-help");
  else byId("members-all").removeAttribute("aria-describedby");
}

function memberMore(part, member) {
  showState(part.state, member.state);
  setText(part.more, member.is_here ? "this server" : member.reason ?? "");
  for (const name of ["host", "pid", "version"]) part[name].classList.toggle("quiet", member.state === "away");
  for (const name of ["queries", "parts"]) showFigure(part[name], member[name], (number) => whole.format(number));
  for (const name of ["grid_bytes", "query_bytes", "resident_bytes"]) showFigure(part[name], member[name], bytes);
}

/** What nobody has said is said to be so: 0 would be another thing. */
function showFigure(node, figure, words) {
  const isKnown = typeof figure === "number";
  setText(node, isKnown ? words(figure) : NOT_KNOWN);
  node.classList.toggle("quiet", !isKnown);
}

function errorMore(part, error) {
  setAttribute(part.time, "datetime", error.time);
  setText(part.time, error.standing ? `since ${moment(error.time)}` : moment(error.time));
}

/** What is wrong as long as it is comes first, then what went wrong, the newest first; each with a key of its own: one request may fail in several ways. */
function standingFirst(errors) {
  const seen = new Map();
  const numbered = errors.map((error) => {
    const key = `${error.time} ${error.request} ${error.message}`;
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return { ...error, key: `${key} ${seen.get(key)}` };
  });
  return numbered.sort((one, other) => Boolean(other.standing) - Boolean(one.standing) || Date.parse(other.time) - Date.parse(one.time));
}

// ---- Grids --------------------------------------------------------------------------------------------------------------------------------------------------

function gridView(number) {
  const { node, part } = cloned("grid-card");
  const view = { node, part, grid: null, showTiles: drawingIn(part), wanted: "", loaded: "", loadedAt: -TILES_MS, loading: false };
  part.card.open = number < OPEN_GRIDS;
  part.card.addEventListener("toggle", () => want(view));
  view.update = (grid) => {
    view.grid = grid;
    view.wanted = JSON.stringify([grid.id, grid.tiles, grid.bytes, grid.localities]);
    showGrid(part, grid);
    want(view);
  };
  return view;
}

function showGrid(part, grid) {
  setText(part.name, grid.name);
  for (const name of ["region", "table"]) setAttribute(part[name], "aria-label", `Tiles of ${isolated(grid.name)} as a table`);
  const shape = `${counted(grid.rows, "row")} × ${counted(grid.columns, "column")}`;
  const tiles = `${counted(grid.tiles, "tile")} (${counted(grid.row_bands, "row band")} × ${counted(grid.column_bands, "column band")})`;
  const lost = lostTiles(grid) > 0 ? lostWords(lostTiles(grid), grid.tiles) : "";
  setText(part.facts, [shape, tiles, lost, bytes(grid.bytes), grid.durable ? "durable" : "not durable"].filter(Boolean).join(" · "));
  const place = ({ locality, tiles: count, bytes: size }) => `${counted(count, "tile")} ${whereWords(locality)}, ${bytes(size)}`;
  setText(part.places, grid.localities.map(place).join(" · "));
}

/** A line for each grid of the cluster of which parts are missing, or contradict each other; what can be done is among the errors. */
function incompleteWords(grids) {
  return grids.map(({ is_there: isThere, message }) => `${isThere ? "Not whole" : "Not there yet"}: ${message}`).join("\n");
}

/** Asks for the tiles of an open card when they are not those that are drawn; one grid after the other. */
function want(view) {
  const fresh = view.wanted === view.loaded || performance.now() - view.loadedAt < TILES_MS;
  if (!view.part.card.open || view.loading || fresh) return;
  view.loading = true;
  page.turn = page.turn.then(() => fetchTiles(view));
}

async function fetchTiles(view) {
  const wanted = view.wanted;
  try {
    view.showTiles(await ask("GET", `/api/grids/${encodeURIComponent(view.grid.name)}`));
    view.loaded = wanted;
  } catch (error) {
    setText(view.part.note, `The tiles cannot be shown: ${error.message}`);
  }
  view.loadedAt = performance.now();
  view.loading = false;
}

// ---- All of it ----------------------------------------------------------------------------------------------------------------------------------------------

const lists = {
  queries: new List("queries", (query) => query.id, () => workView("queries", "query-row", describeQuery)),
  jobs: new List("jobs", (job) => job.id, () => workView("jobs", "job-row", describeJob)),
  grids: new List("grids", (grid) => grid.name, gridView),
  members: new List("members", (member) => member.uri, () => plainView("member-row", ["uri", "host", "pid", "version"], memberMore), countMembers),
  errors: new List("errors", (error) => error.key, () => plainView("error-row", ["kind", "message", "caller", "request"], errorMore)),
};

function show(status) {
  document.title = `partgrid ${status.server.host} ${status.server.state}`;
  showServer(status);
  showMemory(status.memory);
  for (const name of ["jobs", "grids"]) lists[name].show(status[name]);
  setText(byId("grids-incomplete"), incompleteWords(status.incomplete));
  lists.members.show([...status.members, ...status.away.map(awayMember)]);
  showMembersHelp(status.members.length + status.away.length > 1);
  lists.queries.show(runningFirst(status.queries));
  lists.errors.show(standingFirst(status.errors));
  forgetRemoved();
}

byId("retry").addEventListener("click", poll);
byId("forget").addEventListener("click", () => { keep(""); poll(); });
byId("colour").addEventListener("change", drawAgain);
byId("entry-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keep(byId("token").value.trim());
  byId("token").value = "";
  page.entering = false;
  poll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
poll();
