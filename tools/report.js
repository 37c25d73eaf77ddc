"use strict";
/*
 * Draws the report from the data that stands in the page. Ids are names that others chose: they get into the
 * page as text (textContent) and in no other way.
 *
 * data: version, host, source, mountpoint, made, from, step, count and jobs. A job has an id (null: the jobs that are
 * not told apart), `start`, the slice that its series begin with, and of each series the sums over the slices; those
 * that are zero throughout are missing.
 */
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const TOP = 10; // jobs that the overview tells apart

/* --- text --- */

function scaled(value, base, units) {
    let unit = 0;
    while (Math.abs(value) >= base && unit < units.length - 1) {
        value /= base;
        unit++;
    }
    return `${value === 0 ? "0" : Number(value.toPrecision(value >= 100 ? 4 : 3))} ${units[unit]}`.trim();
}

const formatBytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
const formatBandwidth = (value) => `${formatBytes(value)}/s`;
const formatCount = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const formatRate = (value) => `${formatCount(value)} op/s`;
const formatShare = (value) => `${formatCount(Math.abs(value))} op/s`;

function formatSeconds(value) {
    for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
        if (value >= length)
            return `${Number((value / length).toPrecision(3))} ${unit}`;
    return value < 1 ? `${Number((value * 1000).toPrecision(3))} ms` : `${Number(value.toPrecision(3))} s`;
}

const isLong = data.count * data.step > 129600;
const clock = new Intl.DateTimeFormat([], {hour: "2-digit", minute: "2-digit", hourCycle: "h23",
    ...(isLong ? {day: "numeric", month: "short"} : {})});
const moment = new Intl.DateTimeFormat([], {dateStyle: "medium", timeStyle: "long", hourCycle: "h23"});
const timeOf = (slice) => new Date((data.from + slice * data.step) * 1000);

/* --- elements --- */

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes))
        element.setAttribute(key, value);
    element.append(...children);
    return element;
}

const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/* --- series: one value for each slice --- */

const zeros = () => new Float64Array(data.count);
const sum = (values) => values.reduce((total, value) => total + value, 0);

function seriesOf(job, name) {
    const values = zeros();
    (job[name] ?? []).forEach((value, i) => { values[job.start + i] = value; });
    return values;
}

function added(all) {
    const total = zeros();
    for (const values of all)
        values.forEach((value, i) => { total[i] += value; });
    return total;
}

const perSecond = (values, unit = 1) => values.map((value) => value / unit / data.step);

const metrics = [
    {name: "bandwidth", title: "Bandwidth, read and written", format: formatBandwidth,
        of: (job) => perSecond(added([seriesOf(job, "read_bytes"), seriesOf(job, "write_bytes")]))},
    {name: "operations", title: "Operations", format: formatRate,
        of: (job) => perSecond(seriesOf(job, "operations"))},
    {name: "waiting", title: "Requests that wait, on average", format: formatCount,
        of: (job) => perSecond(seriesOf(job, "waited_us"), 1e6)},
];
let metric = metrics[0];

const jobs = data.jobs.map((job) => {
    const total = (name) => sum(job[name] ?? []);
    return {
        series: job,
        name: job.id ?? "(others)",
        read: total("read_bytes"), written: total("write_bytes"), operations: total("operations"),
        waited: total("waited_us") / 1e6, lent: total("lent") + total("repaid"),
        borrowed: total("borrowed") + total("returned"),
        rates: Object.fromEntries(metrics.map((each) => [each.name, each.of(job)])),
    };
});
const isShared = data.jobs.some((job) => job.lent || job.borrowed || job.returned || job.repaid);

/* --- charts --- */

/* A round number that is not less, and how many parts it is divided into: 1, 2, 2.5 or 5 times a power of ten, of 1024
 * where the unit is bytes. */
function roundUp(value, format) {
    let scale = 1;
    if (format === formatBandwidth)
        while (value / scale >= 1024)
            scale *= 1024;
    scale *= 10 ** Math.floor(Math.log10(value / scale));
    const [factor, parts] = [[1, 5], [2, 4], [2.5, 5], [5, 5], [10, 5]].find(([round]) => round * scale >= value * 0.9999);
    return {round: factor * scale, parts};
}

/* The area between two series as steps, since a value holds for its whole slice. */
function areaPath(low, high, x, y) {
    const edge = (values, i) => `H${x(i).toFixed(1)}V${y(values[i]).toFixed(1)}`;
    let path = `M${x(0).toFixed(1)} ${y(low[0]).toFixed(1)}V${y(high[0]).toFixed(1)}`;
    for (let i = 1; i < high.length; i++)
        if (high[i] !== high[i - 1])
            path += edge(high, i);
    path += `H${x(high.length).toFixed(1)}V${y(low[low.length - 1]).toFixed(1)}`;
    for (let i = low.length - 1; i > 0; i--)
        if (low[i] !== low[i - 1])
            path += `H${x(i).toFixed(1)}V${y(low[i - 1]).toFixed(1)}`;
    return `${path}H${x(0).toFixed(1)}Z`;
}

/* Puts the layers on one another: those of positive values above zero, the others below. */
function stack(layers) {
    const above = zeros(), below = zeros();
    return layers.map((layer) => {
        const edge = layer.below ? below : above;
        const low = edge.slice();
        layer.values.forEach((value, i) => { edge[i] += layer.below ? -value : value; });
        return {...layer, low, high: edge.slice()};
    });
}

function timeAxis(x, width, height) {
    const length = data.count * data.step;
    const step = [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600]
        .find((each) => length / each <= width / (isLong ? 110 : 60)) ?? 2592000;
    const shift = new Date(data.from * 1000).getTimezoneOffset() * 60;
    const group = svg("g");
    for (let time = Math.ceil((data.from - shift) / step) * step + shift; time <= data.from + length; time += step) {
        const at = x((time - data.from) / data.step);
        group.append(svg("line", {x1: at, x2: at, y1: height, y2: height + 4, class: "zero"}),
            svg("text", {x: at, y: height + 18, "text-anchor": "middle"}, clock.format(new Date(time * 1000))));
    }
    return group;
}

function valueAxis(bottom, top, parts, width, y, format) {
    const group = svg("g");
    for (let i = 0; i <= parts; i++) {
        const value = bottom + (top - bottom) * i / parts;
        group.append(svg("line", {x1: 0, x2: width, y1: y(value), y2: y(value), class: value === 0 ? "zero" : "grid"}),
            svg("text", {x: -6, y: y(value) + 4, "text-anchor": "end"}, format(value)));
    }
    return group;
}

/* Under the pointer: the time, and the largest values at it. */
function follow(picture, plot, cursor, readout, x, layers, format) {
    plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        const at = Math.floor((event.clientX - box.left) / box.width * data.count);
        const slice = Math.min(Math.max(at, 0), data.count - 1);
        const values = layers.filter((layer) => layer.values[slice] > 0)
            .sort((a, b) => b.values[slice] - a.values[slice])
            .map((layer) => `${layer.name} ${format(layer.values[slice])}`);
        cursor.setAttribute("x1", x(slice + 0.5));
        cursor.setAttribute("x2", x(slice + 0.5));
        cursor.style.visibility = "visible";
        readout.textContent = `${moment.format(timeOf(slice))}: ${values.join(" · ") || "nothing"}`;
    });
    picture.addEventListener("pointerleave", () => {
        cursor.style.visibility = "hidden";
        readout.textContent = "";
    });
}

function legendOf(layers, format) {
    const mean = (layer) => format(sum(layer.values) / data.count);
    return html("ul", {class: "legend"}, html("li", {class: "note"}, "On average:"), ...layers.map((layer) => html("li", {},
        html("span", {class: `swatch ${layer.color}`, "aria-hidden": "true"}), `${layer.name} `,
        html("span", {class: "note"}, mean(layer)))));
}

const pageWidth = () => document.documentElement.clientWidth;

/* A figure of layers {name, values, color, below}, wide or of half the width, and no wider than the page, so that its
 * words can be read on a telephone. */
function chart({title, format, layers, isWide}) {
    const room = Math.max(pageWidth() - (isWide ? 32 : 64), 240);
    const left = 84, width = Math.min(isWide ? 1080 : 520, room) - left - 10, height = isWide ? 240 : 130;
    const stacked = stack(layers);
    const peak = (pick) => stacked.reduce((most, layer) => layer.high.reduce(pick, most), 0);
    const most = peak((a, b) => Math.max(a, b)), least = peak((a, b) => Math.min(a, b));
    const half = Math.max(most, -least);
    const hasBelow = layers.some((layer) => layer.below);
    const {round, parts} = roundUp(half || 1, format);
    const bottom = hasBelow ? -round : 0;
    const x = (slice) => slice / data.count * width;
    const y = (value) => height - (value - bottom) / (round - bottom) * height;
    const cursor = svg("line", {y1: 0, y2: height, class: "cursor"});
    const plot = svg("rect", {x: 0, y: 0, width, height, fill: "none", "pointer-events": "all"});
    const picture = svg("svg", {viewBox: `${-left} -10 ${left + width + 10} ${height + 36}`, role: "img",
        "aria-label": `${title}, ${layers.map((layer) => layer.name).join(", ")}; at most ${format(half)}`},
        valueAxis(bottom, round, hasBelow ? 4 : parts, width, y, format), timeAxis(x, width, height),
        ...stacked.map((layer) => svg("path", {class: layer.color, d: areaPath(layer.low, layer.high, x, y)},
            svg("title", {}, layer.name))), cursor, plot);
    const readout = html("div", {class: "readout", "aria-hidden": "true"});
    follow(picture, plot, cursor, readout, x, layers, format);
    return html("figure", {}, html("h2", {}, title), picture, readout, legendOf(layers, format));
}

function sparkline(values) {
    const most = Math.max(...values) || 1;
    const x = (slice) => slice / data.count * 120, y = (value) => 22 - value / most * 21;
    return svg("svg", {viewBox: "0 0 120 22", class: "spark", "aria-hidden": "true"},
        svg("path", {class: "c0", d: areaPath(zeros(), values, x, y)}));
}

/* --- all jobs --- */

function drawOverview() {
    const size = new Map(jobs.map((job) => [job, sum(job.rates[metric.name])]));
    const ranked = jobs.filter((job) => job.series.id !== null && size.get(job) > 0)
        .sort((a, b) => size.get(b) - size.get(a));
    const top = ranked.slice(0, TOP);
    const rest = jobs.filter((job) => !top.includes(job) && size.get(job) > 0);
    const layers = top.map((job, i) => ({name: job.name, values: job.rates[metric.name], color: `c${i}`}));
    if (rest.length > 0)
        layers.push({name: "all others", color: "others",
            values: added(rest.map((job) => job.rates[metric.name]))});
    document.getElementById("overview").replaceChildren(layers.length > 0
        ? chart({title: metric.title, format: metric.format, layers, isWide: true})
        : html("p", {class: "note"}, `${metric.title}: nothing in this time.`));
}

function drawMetrics() {
    for (const each of metrics) {
        const choice = html("input", {type: "radio", name: "metric", value: each.name});
        choice.checked = each === metric;
        choice.addEventListener("change", () => {
            metric = each;
            drawOverview();
            drawRows();
        });
        document.getElementById("metrics").append(html("label", {}, choice, ` ${each.name}`));
    }
}

/* --- each job --- */

function chartsOf(job) {
    const of = (name, unit) => perSecond(seriesOf(job.series, name), unit);
    const figures = [
        {title: "Bandwidth", format: formatBandwidth, layers: [
            {name: "read", values: of("read_bytes"), color: "c0"},
            {name: "written", values: of("write_bytes"), color: "c1"}]},
        {title: "Operations", format: formatRate, layers: [
            {name: "operations", values: of("operations"), color: "c3"}]},
        {title: "Requests that wait, on average", format: formatCount, layers: [
            {name: "waiting", values: of("waited_us", 1e6), color: "c2"}]},
    ];
    if (isShared)
        figures.push({title: "Lent (above) and borrowed (below)", format: formatShare, layers: [
            {name: "lent", values: of("lent"), color: "c0"},
            {name: "paid back", values: of("repaid"), color: "c8"},
            {name: "borrowed", values: of("borrowed"), color: "c2", below: true},
            {name: "got back", values: of("returned"), color: "c6", below: true}]});
    return html("div", {class: "charts"}, ...figures.map(chart));
}

const columns = [
    {title: "Job", key: (job) => job.name},
    {title: "Read", key: (job) => job.read, text: (job) => formatBytes(job.read)},
    {title: "Written", key: (job) => job.written, text: (job) => formatBytes(job.written)},
    {title: "Operations", key: (job) => job.operations, text: (job) => formatCount(job.operations)},
    {title: "Waited", key: (job) => job.waited, text: (job) => formatSeconds(job.waited)},
    ...(isShared ? [
        {title: "Lent, op", key: (job) => job.lent, text: (job) => formatCount(job.lent)},
        {title: "Borrowed, op", key: (job) => job.borrowed, text: (job) => formatCount(job.borrowed)}] : []),
];
/* By what there was more of. */
const total = (key) => jobs.reduce((sum, job) => sum + job[key], 0);
let order = {column: columns[total("written") > total("read") ? 2 : 1], descending: true};

function drawHead() {
    const cells = columns.map((column) => {
        const button = html("button", {type: "button"}, column.title);
        const cell = html("th", {scope: "col"}, button);
        if (order.column === column)
            cell.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
        button.addEventListener("click", () => {
            const same = order.column === column;
            order = {column, descending: same ? !order.descending : column !== columns[0]};
            drawHead();
            drawRows();
            document.querySelectorAll("thead button")[columns.indexOf(column)].focus();
        });
        return cell;
    });
    document.querySelector("#jobs thead tr").replaceChildren(...cells, html("th", {scope: "col"}, "Over time"));
}

const opened = new Set(jobs.length === 1 ? jobs : []);

function rowOf(job) {
    const button = html("button", {type: "button", "aria-expanded": String(opened.has(job))}, job.name);
    const row = html("tr", {class: "job"}, html("td", {}, button),
        ...columns.slice(1).map((column) => html("td", {}, column.text(job))),
        html("td", {}, sparkline(job.rates[metric.name])));
    row.addEventListener("click", () => {
        const open = !opened.has(job);
        button.setAttribute("aria-expanded", String(open));
        if (open) {
            opened.add(job);
            row.after(detailsOf(job));
        } else {
            opened.delete(job);
            row.nextSibling.remove();
        }
    });
    return row;
}

const detailsOf = (job) => html("tr", {class: "details"},
    html("td", {colspan: columns.length + 1}, chartsOf(job)));

function compare(a, b) {
    const first = order.column.key(a), second = order.column.key(b);
    const result = typeof first === "string" ? first.localeCompare(second, [], {numeric: true}) : first - second;
    return order.descending ? -result : result;
}

function drawRows() {
    const wanted = document.getElementById("filter").value.toLowerCase();
    const shown = jobs.filter((job) => job.name.toLowerCase().includes(wanted)).sort(compare);
    document.querySelector("#jobs tbody").replaceChildren(
        ...shown.flatMap((job) => opened.has(job) ? [rowOf(job), detailsOf(job)] : [rowOf(job)]));
    const all = jobs.length === 1 ? "1 job" : `${jobs.length} jobs`;
    document.getElementById("shown").textContent = shown.length === jobs.length ? all : `${shown.length} of ${all}`;
}

/* --- the page --- */

const end = timeOf(data.count).getTime() > data.made * 1000 ? new Date(data.made * 1000) : timeOf(data.count);
document.title = `qosfs report: ${data.mountpoint} on ${data.host}`;
document.getElementById("about").textContent =
    `${data.source} through ${data.mountpoint} on ${data.host}, from ${moment.format(timeOf(0))} to ` +
    `${moment.format(end)}, in steps of ${formatSeconds(data.step)}. Made by qosfs ${data.version}.`;
if (jobs.length > 0) {
    drawMetrics();
    drawOverview();
    drawHead();
    drawRows();
    document.getElementById("filter").addEventListener("input", drawRows);
    let drawnFor = pageWidth();
    addEventListener("resize", () => {
        if (pageWidth() === drawnFor)
            return;
        drawnFor = pageWidth();
        drawOverview();
        drawRows();
    });
} else {
    document.querySelector("main").replaceChildren(html("p", {}, "No job did anything in this time."));
}
document.querySelector("main").hidden = false;
})();
