"use strict";

// Without this script, times are in UTC. With it, they are in the viewer's zone, with UTC in the title.

// clock formats a Date with 24 hours, whatever the browser's language; a time of another day has its date and no seconds.
function clock(t, withSeconds = true) {
	const two = (n) => String(n).padStart(2, "0");
	const minutes = two(t.getHours()) + ":" + two(t.getMinutes());
	if (t.toDateString() !== new Date().toDateString()) return two(t.getMonth() + 1) + "-" + two(t.getDate()) + " " + minutes;
	return withSeconds ? minutes + ":" + two(t.getSeconds()) : minutes;
}

// showTimes formats the times in an element.
function showTimes(root) {
	for (const e of root.querySelectorAll("time")) e.textContent = clock(new Date(e.dateTime));
	const zone = document.getElementById("zone");
	if (zone) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
}

showTimes(document);
