"use strict";

// The page is a plain table without this script. With it, the parts that change are replaced as the server sends them, the
// bars run, and the chart is drawn.

const byId = (id) => document.getElementById(id);

function runBars() {
	const now = Date.now();
	for (const cell of document.querySelectorAll(".expiry")) {
		const since = +cell.dataset.since, expires = +cell.dataset.expires;
		let bar = cell.querySelector("progress");
		if (!bar) {
			cell.title = cell.textContent;
			cell.textContent = "";
			cell.append(document.createElement("span"), bar = document.createElement("progress"));
		}
		const left = Math.max(0, Math.round((expires - now) / 1000));
		const h = Math.floor(left / 3600), m = Math.floor(left / 60) % 60, s = left % 60;
		cell.firstChild.textContent = left === 0 ? "due" : "in " + (h ? h + "h " : "") + (h || m ? m + "m " : "") + s + "s";
		bar.max = Math.max(1, expires - since);
		bar.value = Math.max(0, expires - now);
	}
}

function say(text) {
	const live = byId("live");
	if (live) live.textContent = text;
}

// what finds a link, or the head of an open queue, again when the part around it was replaced.
const keyOf = (e) => e.getAttribute("href") || (e.parentElement && e.parentElement.dataset.key);

function replace(part, html) {
	const open = new Set([...part.querySelectorAll("details[open]")].map((d) => d.dataset.key));
	const focused = part.contains(document.activeElement) ? keyOf(document.activeElement) : null;
	part.innerHTML = html; // made and escaped by the server's templates
	for (const d of part.querySelectorAll("details")) d.open = open.has(d.dataset.key);
	if (focused) {
		for (const e of part.querySelectorAll("a, summary")) if (keyOf(e) === focused) e.focus({ preventScroll: true });
	}
}

let held = null; // what came while a button of the mouse was down: a click needs the element that it began on
function show(news) {
	if (held) { Object.assign(held, news); return; }
	for (const id in news) replace(byId(id), news[id]);
	say("live");
	runBars();
}
addEventListener("pointerdown", () => { held = held || {}; });
for (const end of ["pointerup", "pointercancel"]) {
	addEventListener(end, () => setTimeout(() => { const news = held || {}; held = null; show(news); }, 50));
}

function follow() {
	const source = new EventSource("/stream" + location.search);
	source.addEventListener("parts", (e) => show(JSON.parse(e.data)));
	source.addEventListener("over", () => { source.close(); location.href = "/login"; });
	source.addEventListener("error", () => say("the server does not answer; trying again …"));
}

// clock shows seconds since 1970 as the server's tables show times: with 24 hours, whatever the browser's language.
const clock = (parts) => (v) => new Date(v * 1000).toLocaleTimeString([], { hourCycle: "h23", ...parts });

function draw(columns) {
	const text = getComputedStyle(document.body).getPropertyValue("--text").trim() || "#000";
	const line = getComputedStyle(document.body).getPropertyValue("--line").trim() || "#ccc";
	const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
	const series = (label, stroke, scale, dash) => ({ label, stroke, scale, width: 2, dash, spanGaps: true, points: { show: columns[0].length < 60 } });
	const minutes = clock({ hour: "2-digit", minute: "2-digit" }), seconds = clock({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
	return new uPlot({
		width: byId("plot").clientWidth, height: 240,
		scales: { count: { range: (u, min, max) => [0, Math.max(5, max)] }, ms: { range: (u, min, max) => [0, Math.max(1, max || 0)] } },
		axes: [{ ...axis, space: 80, incrs: [60, 120, 300, 600, 900], values: (u, all) => all.map(minutes) }, { ...axis, scale: "count" }, { ...axis, scale: "ms", side: 1, size: 70, grid: { show: false }, values: (u, all) => all.map((v) => v + " ms") }],
		series: [{ value: (u, v) => v === null ? "–" : seconds(v) }, series("held", "#2a7fc9", "count"), series("waiting", "#d9822b", "count", [6, 3]), series("hand-over, median (ms)", "#4c9a52", "ms", [2, 3])],
	}, columns, byId("plot"));
}

let plot;
async function chart() {
	try {
		const columns = await (await fetch("/chart.json")).json();
		if (!columns[0].length) return;
		byId("chart").hidden = false;
		if (plot) plot.setData(columns); else plot = draw(columns);
	} catch (e) { /* the server does not answer; the next time it may */ }
}

follow();
runBars();
setInterval(runBars, 1000);
chart();
setInterval(chart, 10000);
addEventListener("resize", () => { if (plot) plot.setSize({ width: byId("plot").clientWidth, height: 240 }); });
