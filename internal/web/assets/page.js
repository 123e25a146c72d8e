"use strict";

// The page works without this script. The script replaces the parts that the server sends, counts down to each expiry, and
// draws the chart.

const byId = (id) => document.getElementById(id);

// runBars shows the remaining time of each lock.
function runBars() {
	const now = Date.now();
	for (const cell of document.querySelectorAll(".expiry")) {
		const since = +cell.dataset.since, expires = +cell.dataset.expires;
		let bar = cell.querySelector("progress");
		if (!bar) {
			const time = cell.querySelector("time");
			cell.title = "at " + time.textContent + " (" + time.title + ")";
			cell.textContent = "";
			cell.append(document.createElement("span"), bar = document.createElement("progress"));
			bar.setAttribute("aria-hidden", "true"); // the text before it has the same information
		}
		const left = Math.max(0, Math.round((expires - now) / 1000));
		const h = Math.floor(left / 3600), m = Math.floor(left / 60) % 60, s = left % 60;
		cell.firstChild.textContent = left === 0 ? "due" : h ? h + "h " + m + "m" : m ? m + "m " + s + "s" : s + "s";
		bar.max = Math.max(1, expires - since);
		bar.value = Math.max(0, expires - now);
	}
}

function report(text) {
	if (byId("live").textContent !== text) byId("live").textContent = text;
}

// replace shows the new HTML of a part and keeps the focus on its link.
function replace(part, html) {
	const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
	part.innerHTML = html; // made and escaped by the server's templates
	showTimes(part);
	if (focused) for (const a of part.querySelectorAll("a")) if (a.getAttribute("href") === focused) { a.focus({ preventScroll: true }); break; }
}

let held = null; // parts that came while a button of the mouse was down: a click needs the element on which it began
function show(news) {
	if (held) { Object.assign(held, news); return; }
	for (const id in news) replace(byId(id), news[id]);
	report("live");
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
	source.addEventListener("error", () => {
		report("the server does not answer; trying again …");
		if (source.readyState === EventSource.CLOSED) setTimeout(again, 3000); // after an answer other than a stream
	});
}

// again follows the server, unless it has forgotten the log-in.
async function again() {
	const page = await fetch(location.href).catch(() => null);
	if (page && page.redirected) location.href = "/login"; else follow();
}

// axisSize returns the width of an axis: that of its widest label.
function axisSize(u, labels, axis, cycle) {
	const a = u.axes[axis];
	if (cycle > 1) return a._size; // a size that follows its own labels may never settle
	u.ctx.font = a.font[0];
	const widest = Math.max(0, ...(labels || []).map((text) => u.ctx.measureText(text).width));
	return Math.ceil(a.ticks.size + a.gap + widest / devicePixelRatio) + 2;
}

function draw(columns) {
	const style = getComputedStyle(document.documentElement), text = style.getPropertyValue("--text"), line = style.getPropertyValue("--line");
	const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
	const series = (label, stroke, scale, dash) => ({ label, stroke, scale, width: 2, dash, spanGaps: true, points: { show: columns[0].length < 60 } });
	const at = (v, withSeconds) => clock(new Date(v * 1000), withSeconds);
	return new uPlot({
		width: byId("plot").clientWidth, height: 200,
		scales: { count: { range: (u, min, max) => [0, Math.max(5, max)] }, ms: { range: (u, min, max) => [0, Math.max(1, max || 0)] } },
		axes: [{ ...axis, space: 80, incrs: [60, 120, 300, 600, 900], values: (u, all) => all.map((v) => at(v, false)) }, { ...axis, scale: "count", size: axisSize }, { ...axis, scale: "ms", side: 1, size: axisSize, grid: { show: false }, values: (u, all) => all.map((v) => v + " ms") }],
		series: [{ value: (u, v) => v === null ? "–" : at(v, true) }, series("held", "#2a7fc9", "count"), series("waiting", "#d9822b", "count", [6, 3]), series("hand-over, median (ms)", "#4c9a52", "ms", [2, 3])],
	}, columns, byId("plot"));
}

let plot;
async function chart() {
	try {
		const columns = await (await fetch("/chart.json")).json();
		if (columns[0].length < 2) return;
		byId("chart").hidden = false;
		if (plot) plot.setData(columns); else plot = draw(columns);
	} catch (e) { /* the server does not answer; the next call may succeed */ }
}

follow();
runBars();
setInterval(runBars, 1000);
chart();
setInterval(chart, 10000);
addEventListener("resize", () => { if (plot) plot.setSize({ width: byId("plot").clientWidth, height: 200 }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (plot) plot.destroy(); plot = null; chart(); });
