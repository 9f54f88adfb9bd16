// Grids as pictures: a block for each tile, or for several neighbours, with a legend, a line on the block that is pointed at, and a table.
//
// Comes in: the JSON of /api/grids/NAME, the parts of a grid's card in index.html, the choice of colour, and what a person points at and presses. Goes out: SVG and
// text in those parts; and the words and elements that page.js makes of numbers and names in the same way. Never here: requests, waiting for the server, other parts
// of the page, and markup made out of what the server says.

/** A picture has no more blocks than these, none smaller than this many pixels, and a height between these. */
const MOST_BLOCKS = 1000;
const LEAST_SIDE = 6;
const HEIGHTS = [72, 320];
const MOST_LISTED = 200;
const SIGNS = "ABCDEF";
const NUM_STEPS = 5;
const MIXED = -1;
const UNKNOWN = { look: "unknown", sign: "?" };
/** What nobody has any more, as the server says it, and how it looks, whatever tiles are coloured by. */
const LOST = "lost";
const LOST_PAINT = { look: "lost", sign: "×", pattern: "lost" };
const WHERE = { memory: "in memory", shared: "in shared memory", device: "on a device", process: "in another process", file: "in a file", [LOST]: "lost" };
const HINT = "Point at a tile or tap it, or move with Tab and the arrow keys.";

// ---- Words and elements, for page.js as well ----------------------------------------------------------------------------------------------------------------

export const byId = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat("en");

/** A number with its unit, which no line break parts. */
export function measured(number, unit) {
  return `${number}\u00a0${unit}`;
}

/** Decimal units with one digit after the point, as everywhere in partgrid. */
export function bytes(count) {
  if (count < 1000) return measured(count, "B");
  let [size, unit] = [count / 1000, 0];
  for (; size >= 999.95 && unit < 5; unit += 1) size /= 1000;
  return measured(size.toFixed(1), ["kB", "MB", "GB", "TB", "PB", "EB"][unit]);
}

export function counted(count, noun) {
  return `${whole.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** The beginning of a long text, cut between characters. */
export function cut(text, most) {
  const characters = [...text.slice(0, 2 * most)];
  return characters.length > most || text.length > 2 * most ? `${characters.slice(0, most).join("")}…` : text;
}

/** A name amid words of ours: short, on one line, and unable to turn the direction of what stands around it. */
export function isolated(name) {
  return `\u2068${cut(String(name).replace(/\s+/g, " ").replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd"), 60)}\u2069`;
}

/** Controls that turn the direction of text become a mark: no name or SQL reads otherwise than it is. */
function plain(text) {
  return String(text).replace(/[\u202a-\u202e\u2066\u2067]/g, "\ufffd");
}

export function setText(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

export function setAttribute(node, name, value) {
  const shown = plain(value);
  if (node.getAttribute(name) !== shown) node.setAttribute(name, shown);
}

function svgElement(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// ---- A grid as a picture: what is where (pure) --------------------------------------------------------------------------------------------------------------

/** How many blocks are drawn down and across: each has its least side, and there are not too many. */
function blocksAlong(down, across, width) {
  down = Math.min(down, Math.floor(HEIGHTS[1] / LEAST_SIDE));
  across = Math.min(across, Math.max(1, Math.floor(width / LEAST_SIDE)));
  down = Math.max(1, Math.floor(down * Math.min(1, Math.sqrt(MOST_BLOCKS / (down * across)))));
  return [down, Math.min(across, Math.floor(MOST_BLOCKS / down))];
}

/** The intervals between cuts in `count` runs of neighbours, side by side over so many pixels: the least side to each, the rest by rows or columns. */
function runs(cuts, count, pixels) {
  const intervals = cuts.length - 1;
  const total = cuts[intervals] - cuts[0];
  let start = 0;
  return Array.from({ length: count }, (_, number) => {
    const [first, end] = [Math.floor((number * intervals) / count), Math.floor(((number + 1) * intervals) / count)];
    const extent = cuts[end] - cuts[first];
    const length = LEAST_SIDE + (pixels - count * LEAST_SIDE) * (total > 0 ? extent / total : 1 / count);
    start += length;
    return { first, end, extent, from: cuts[first], start: start - length, length };
  });
}

export function whereWords(locality) {
  return WHERE[locality] ?? locality;
}

/** How many tiles of a grid of the status are lost. */
export function lostTiles(grid) {
  return grid.localities.find(({ locality }) => locality === LOST)?.tiles ?? 0;
}

/** `3 of 12 tiles lost`. */
export function lostWords(lost, all) {
  return `${whole.format(lost)} of ${counted(all, "tile")} lost`;
}

function isLost(tile) {
  return tile.locality === LOST;
}

/** Where a tile is; of one that is lost, where it was. */
function placeOf(tile) {
  const location = [tile.location].flat().filter(Boolean).map(plain).join(", ");
  return [whereWords(tile.locality), isLost(tile) && location ? `was in ${location}` : location].filter(Boolean).join(", ");
}

/** Blocks of one tile or of several neighbours, and the places of all tiles, the most frequent first. */
function layOut(detail, width) {
  const [rows, columns] = [detail.row_cuts.length - 1, detail.column_cuts.length - 1];
  if (!(rows > 0 && columns > 0)) return null;
  const [down, across] = blocksAlong(rows, columns, width);
  const height = Math.min(HEIGHTS[1], Math.max(HEIGHTS[0], down * 24));
  const columnRuns = runs(detail.column_cuts, across, width);
  const blocks = runs(detail.row_cuts, down, height).flatMap((row) => columnRuns.map((column) => ({ row, column, tiles: 0, lost: 0, bytes: 0, rows: 0, place: null, was: "" })));
  const places = new Map();
  for (const tile of detail.tiles) {
    const runOf = (position, intervals, count) => Math.floor(((position + 1) * count - 1) / intervals);
    const block = blocks[runOf(tile.position[0], rows, down) * across + runOf(tile.position[1], columns, across)];
    const place = placeOf(tile);
    block.tiles += 1;
    block.bytes += tile.bytes;
    block.rows += tile.rows;
    if (isLost(tile)) {
      block.lost += 1;
      block.was = place;
      continue;
    }
    places.set(place, (places.get(place) ?? 0) + 1);
    block.place = block.place === null || block.place === place ? place : MIXED;
  }
  const lost = detail.tiles.filter(isLost).length;
  const frequent = [...places].sort((one, other) => other[1] - one[1]);
  return { rows, columns, down, across, width, height, blocks, lost, places: frequent, merged: down < rows || across < columns };
}

/** For each block its look and sign, and the legend. A place looks the same in all pictures of the page. */
function byPlace(picture) {
  releaseSlots();
  const slots = new Map(picture.places.map(([place]) => [place, slotOf(place)]));
  const paintOf = (slot) => ({ look: `place-${slot}`, sign: SIGNS[slot] ?? "+", pattern: slot });
  const own = picture.places.filter(([place]) => slots.get(place) < SIGNS.length);
  const legend = own.map(([place, count]) => ({ ...paintOf(slots.get(place)), text: `${place}: ${counted(count, "tile")}` }));
  const others = picture.blocks.some((block) => block.place === MIXED && !block.lost) || own.length < picture.places.length;
  if (others) legend.push({ ...paintOf(SIGNS.length), text: "several or other locations" });
  return { of: (block) => paintOf(slots.get(block.place) ?? SIGNS.length), legend };
}

/** The number of a place among those that any picture shows, from 0; past the last sign for all that came too late for one of their own. */
function slotOf(place) {
  if (!known.has(place)) {
    const taken = new Set(known.values());
    const free = [...SIGNS].findIndex((_, slot) => !taken.has(slot));
    if (free < 0) return SIGNS.length;
    known.set(place, free);
  }
  return known.get(place);
}

/** Lets others have the slots of places that no picture shows any more. */
function releaseSlots() {
  const shown = new Set([...drawn.values()].flatMap((view) => (view.picture?.places ?? []).map(([place]) => place)));
  for (const place of known.keys()) if (!shown.has(place)) known.delete(place);
}

function byNumber(picture, number, words) {
  const values = picture.blocks.filter((block) => block.tiles && !block.lost).map((block) => block[number] / block.tiles);
  const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const size = (most - least) / NUM_STEPS;
  const stepOf = (value) => (size > 0 ? Math.min(NUM_STEPS - 1, Math.floor((value - least) / size)) : 0);
  const paintOf = (step) => ({ look: `step-${step}`, sign: String(step + 1) });
  const steps = [...new Set(values.map(stepOf))].sort();
  const text = (step) => (size > 0 ? `${words(Math.round(least + step * size))} to ${words(Math.round(least + (step + 1) * size))}` : words(least));
  const legend = steps.map((step) => ({ ...paintOf(step), text: `${text(step)}${picture.merged ? " a tile, on average" : ""}` }));
  return { of: (block) => paintOf(stepOf(block[number] / block.tiles)), legend };
}

function paints(picture, colour) {
  if (colour === "location") return byPlace(picture);
  return colour === "size" ? byNumber(picture, "bytes", bytes) : byNumber(picture, "rows", (count) => counted(count, "row"));
}

/** What a block tells when it is pointed at or has the focus. */
function telling(block, detail) {
  const along = (run) => (run.end - run.first === 1 ? `${run.first}` : `${run.first} to ${run.end - 1}`);
  const at = `(${along(block.row)}, ${along(block.column)})`;
  const names = detail.column_names.slice(block.column.from, block.column.from + block.column.extent);
  const columns = names.length > 1 ? `columns ${isolated(names[0])} to ${isolated(names.at(-1))}` : names.map((name) => `column ${isolated(name)}`).join("");
  if (!block.tiles) return `${at}: not listed by the server`;
  const rows = `${counted(block.row.extent, "row")} from ${whole.format(block.row.from)} on`;
  const what = block.tiles === 1 ? `Tile ${at}` : `${counted(block.tiles, "tile")} ${at}`;
  const lost = block.lost > 0 && (block.tiles === 1 ? block.was : lostWords(block.lost, block.tiles));
  const place = lost || (block.place === MIXED ? "several locations" : block.place);
  return `${what}: ${[rows, columns, bytes(block.bytes), place].filter(Boolean).join(", ")}`;
}

// ---- A grid as a picture: elements --------------------------------------------------------------------------------------------------------------------------

/** Puts a rectangle with the colour and the pattern of a paint into a group and, where there is room, its sign among the signs. */
function painted({ look, sign, pattern }, { x, y, width, height }, group, signs) {
  const inner = { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1.5), height: Math.max(1, height - 1.5) };
  group.setAttribute("class", `tile ${look}`);
  group.append(svgElement("rect", { ...inner, class: "fill" }));
  if (pattern) group.append(svgElement("rect", { ...inner, fill: `url(#pattern-${pattern})` }));
  if (width >= 11 && height >= 13) {
    const text = svgElement("text", { x: x + width / 2, y: y + height / 2, class: look });
    text.textContent = sign;
    signs.append(text);
  }
  return group;
}

function draw(view) {
  const { part, detail } = view;
  const width = Math.floor(part.drawing.clientWidth);
  if (!detail || width < LEAST_SIDE) return;
  const picture = layOut(detail, width);
  view.width = width;
  setText(part.note, noteOf(picture, detail));
  if (!picture) return clear(view);
  view.picture = picture;
  const paint = paints(picture, byId("colour").value);
  const focused = part.drawing.contains(document.activeElement);
  const listed = detail.tiles.length < picture.rows * picture.columns ? " of those listed" : "";
  const lost = picture.lost > 0 ? `${lostWords(picture.lost, detail.tiles.length)}${listed}` : "";
  const shape = [counted(picture.rows, "row band"), counted(picture.columns, "column band"), lost].filter(Boolean).join(", ");
  const label = `Tiles of ${isolated(detail.name)}: ${shape}. Arrow keys move.`;
  const svg = svgElement("svg", { class: "tiles", role: "grid", "aria-readonly": "true", "aria-label": label, viewBox: `0 0 ${width} ${picture.height}`, height: picture.height });
  const signs = svgElement("g", { class: "signs", "aria-hidden": "true" });
  view.cells = picture.blocks.map((block) => {
    const cell = svgElement("g", { role: "gridcell", tabindex: -1, "aria-label": telling(block, detail) });
    const place = { x: block.column.start, y: block.row.start, width: block.column.length, height: block.row.length };
    return painted(block.lost ? LOST_PAINT : block.tiles ? paint.of(block) : UNKNOWN, place, cell, signs);
  });
  for (let row = 0; row < picture.down; row += 1) {
    const group = svgElement("g", { role: "row" });
    group.append(...view.cells.slice(row * picture.across, (row + 1) * picture.across));
    svg.append(group);
  }
  view.ring = svgElement("rect", { class: "ring", "aria-hidden": "true" });
  svg.append(signs, view.ring);
  part.drawing.replaceChildren(svg);
  view.at = Math.min(view.at, view.cells.length - 1);
  view.cells[view.at].setAttribute("tabindex", 0);
  if (focused) view.cells[view.at].focus();
  const unlisted = picture.blocks.some((block) => !block.tiles) ? [{ ...UNKNOWN, text: "not listed by the server" }] : [];
  const gone = lost ? [{ ...LOST_PAINT, text: lost }] : [];
  showLegend(part.legend, [...gone, ...paint.legend, ...unlisted]);
}

function clear(view) {
  Object.assign(view, { picture: null, cells: [], ring: null, at: 0 });
  for (const name of ["drawing", "legend"]) view.part[name].replaceChildren();
}

function noteOf(picture, detail) {
  if (!picture) return "This grid has no tiles.";
  const merged = picture.merged ? `Drawn as ${picture.down} × ${picture.across} blocks of neighbouring tiles.` : "";
  const left = detail.left_out ? ` The server did not list ${counted(detail.left_out, "further tile")}.` : "";
  return (merged + left).trim();
}

function showLegend(list, entries) {
  list.replaceChildren(...entries.map((entry) => {
    const [item, text] = [document.createElement("li"), document.createElement("bdi")];
    const swatch = svgElement("svg", { viewBox: "0 0 24 20", "aria-hidden": "true", focusable: "false" });
    const signs = svgElement("g", { class: "signs" });
    swatch.append(painted(entry, { x: 0, y: 0, width: 24, height: 20 }, svgElement("g", {}), signs), signs);
    setText(text, entry.text);
    item.append(swatch, text);
    return item;
  }));
}

/** Tells of the cell and puts the ring around it; without a cell, of the one with the focus, or how to get to one. */
function point(view, cell) {
  const focused = view.cells.indexOf(document.activeElement);
  const shown = cell ?? view.cells[focused];
  view.ring?.classList.toggle("pointed", Boolean(shown));
  setText(view.part.told, shown ? shown.getAttribute("aria-label") : HINT);
  const rect = shown?.querySelector("rect");
  if (rect) for (const name of ["x", "y", "width", "height"]) view.ring.setAttribute(name, rect.getAttribute(name));
}

function move(view, event) {
  const { across, down } = view.picture;
  const [row, column] = [Math.floor(view.at / across), view.at % across];
  const end = event.ctrlKey ? down - 1 : row;
  const to = {
    ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    Home: [event.ctrlKey ? 0 : row, 0], End: [end, across - 1],
  }[event.key];
  if (!to || event.altKey || event.metaKey) return;
  event.preventDefault();
  const within = (number, count) => Math.min(count - 1, Math.max(0, number));
  view.cells[within(to[0], down) * across + within(to[1], across)].focus();
}

function listen(view) {
  const { drawing } = view.part;
  const cellOf = (event) => event.target.closest("[role=gridcell]");
  drawing.addEventListener("pointerover", (event) => point(view, cellOf(event)));
  drawing.addEventListener("pointerleave", () => point(view, null));
  drawing.addEventListener("focusin", (event) => {
    const cell = cellOf(event);
    view.cells[view.at]?.setAttribute("tabindex", -1);
    view.at = view.cells.indexOf(cell);
    cell.setAttribute("tabindex", 0);
    point(view, cell);
  });
  drawing.addEventListener("focusout", () => queueMicrotask(() => point(view, null)));
  drawing.addEventListener("keydown", (event) => cellOf(event) && move(view, event));
}

/** Puts the first tiles into the table below the drawing, while that is open. */
function listTiles({ part, detail }) {
  if (!part.listing.open || !detail) return;
  const rowOf = (tile) => {
    const row = document.createElement("tr");
    const texts = [`(${tile.position.join(", ")})`, whole.format(tile.rows), bytes(tile.bytes), placeOf(tile)];
    row.append(...texts.map((text, number) => {
      const cell = document.createElement(number ? "td" : "th");
      if (!number) cell.scope = "row";
      if (number === 1 || number === 2) cell.className = "number";
      setText(cell, text);
      return cell;
    }));
    return row;
  };
  part.tiles.replaceChildren(...detail.tiles.slice(0, MOST_LISTED).map(rowOf));
  const more = detail.tiles.length - MOST_LISTED + detail.left_out;
  setText(part.listed, detail.tiles.length > MOST_LISTED ? `${counted(more, "tile")} more, not in this table.` : "");
}

// ---- Every drawing ------------------------------------------------------------------------------------------------------------------------------------------

const drawn = new Map();
/** The slots of places that pictures show. */
const known = new Map();
const widths = new ResizeObserver(() => requestAnimationFrame(() => {
  for (const [drawing, view] of drawn) if (Math.floor(drawing.clientWidth) !== view.width) draw(view);
}));

/** Prepares the parts of a grid's card, and gives the function that shows its tiles there: it is told of a grid, and draws it again when the width changes. */
export function drawingIn(part) {
  const view = { part, detail: null, picture: null, cells: [], ring: null, at: 0, width: 0 };
  setText(part.told, HINT);
  listen(view);
  part.listing.addEventListener("toggle", () => listTiles(view));
  drawn.set(part.drawing, view);
  widths.observe(part.drawing);
  return (detail) => {
    view.detail = detail;
    draw(view);
    listTiles(view);
  };
}

/** Draws all again, after the choice of colour changed. */
export function drawAgain() {
  for (const view of drawn.values()) draw(view);
}

/** Lets go of drawings whose cards are no longer in the page. */
export function forgetRemoved() {
  for (const drawing of drawn.keys()) if (!drawing.isConnected) { widths.unobserve(drawing); drawn.delete(drawing); }
}
