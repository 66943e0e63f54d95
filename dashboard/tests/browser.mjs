/**
 * Clicks through every page of a live node in a real browser and prints a report as JSON.
 * tests/integration/test_dashboard.py starts the node, says where it is, and reads the report.
 */
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { chromium } from "playwright-core";

const world = JSON.parse(readFileSync(0, "utf8"));
const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const report = { steps: [], console: [], inert: true, violations: [], paintMs: null };
const PATIENCE = 30_000;

const browser = await chromium.launch({ executablePath: world.chromium, args: ["--no-sandbox"] });

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("pageerror", (error) => report.console.push(error.message));
  page.on("console", (message) => {
    // Who is not signed in is told so by a 401, which a browser writes down by itself.
    const known = /status of 401/.test(message.text());
    if (message.type() === "error" && !known) report.console.push(`${message.text()} (${page.url()})`);
  });
  return page;
}

async function step(name, work) {
  if (world.only && !name.includes(world.only)) return;
  try {
    await work();
    report.steps.push({ name, error: null });
  } catch (error) {
    report.steps.push({ name, error: String(error.message ?? error).slice(0, 1500) });
    if (world.shots) await lastPage?.screenshot({ path: `${world.shots}/${report.steps.length}.png` }).catch(() => {});
  }
}

let lastPage;
const text = (page, wanted, scope = "main") => page.locator(scope).getByText(wanted).first().waitFor();

async function go(page, address) {
  lastPage = page;
  await page.goto(`${world.address}/#/${address}`);
}

async function check(page, name) {
  const known = await page.evaluate(() => "axe" in window);
  if (!known) await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const v of found.violations) {
    if (v.impact === "serious" || v.impact === "critical") {
      report.violations.push(`${name}: ${v.id}: ${v.nodes[0].target.join(" ")}: ${v.nodes[0].failureSummary}`);
    }
  }
}

function expect(condition, message) {
  if (!condition) throw new Error(message);
}

async function linked(options) {
  const made = await fetch(`${world.address}/dashboard/links`, { method: "POST", headers: { authorization: `Bearer ${world.admin}` } });
  const { link } = await made.json();
  const page = await open(options);
  lastPage = page;
  await page.goto(link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return { page, link };
}

await step("a token signs a viewer in, who is offered nothing that viewers may not do", async () => {
  const page = (lastPage = await open());
  await page.goto(world.address);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await check(page, "sign-in");
  await page.getByLabel("Token").fill("fst_0000000000000000_nonsense");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("unknown, expired or revoked").waitFor();
  await page.getByLabel("Token").fill(world.viewer);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  expect((await page.evaluate(() => document.cookie)) === "", "scripts see the cookie");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  expect(!kept.includes("fst_"), "the token is kept in the browser");
  expect((await page.getByRole("link", { name: "Submit" }).count()) === 0, "a viewer is offered to submit");
  await go(page, `jobs/${world.stream}`);
  await page.getByRole("heading", { name: "clicks" }).waitFor();
  expect((await page.getByRole("button", { name: "Cancel" }).count()) === 0, "a viewer is offered to cancel");
  await go(page, "cluster");
  await text(page, "Only admins may see the configuration");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
});

const { page, link } = await linked();

await step("a link works once", async () => {
  const again = await page.context().request.get(link, { maxRedirects: 0 });
  expect(again.status() === 403, `it was answered with ${again.status()}`);
});

await step("the overview counts jobs and names the failure", async () => {
  await go(page, "");
  await page.locator(".tile-failed b").filter({ hasText: /[1-9]/ }).waitFor();
  await text(page, "is not a number");
  await check(page, "overview");
});

await step("jobs are found by name and state, and the address says which", async () => {
  await go(page, "jobs");
  await page.getByRole("link", { name: "clicks", exact: true }).waitFor();
  await check(page, "jobs");
  await page.getByRole("searchbox").fill("broken");
  await page.waitForFunction(() => location.hash.includes("q=broken") && document.querySelectorAll(".job-link").length === 1);
  await page.getByRole("searchbox").fill("");
  await page.getByRole("button", { name: /^finished/ }).click();
  await page.waitForFunction(() => location.hash.includes("state=finished"));
  expect((await page.getByRole("link", { name: "clicks", exact: true }).count()) === 0, "a running job is shown as finished");
  await page.getByRole("button", { name: "all" }).click();
  await page.getByRole("button", { name: "Name" }).click();
  const names = await page.locator(".job-link").allTextContents();
  expect(names.length > 2 && names.join("\0") === [...names].sort((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1)).join("\0"), `not sorted: ${names}`);
});

await step("a job that is submitted elsewhere appears and ends by itself", async () => {
  await go(page, "jobs");
  await page.getByRole("link", { name: "clicks", exact: true }).waitFor();
  const made = await fetch(`${world.address}/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${world.admin}`, "content-type": "application/json" },
    body: JSON.stringify({ graph: world.quick }),
  });
  expect(made.status === 202, await made.text());
  const row = page.locator("tr").filter({ hasText: world.quick.name });
  await row.waitFor();
  await row.locator(".badge").filter({ hasText: "finished" }).waitFor({ timeout: 90_000 });
});

await step("the graph shows vertices with rows, and what is behind one", async () => {
  await go(page, `jobs/${world.stream}`);
  await page.locator(".vertex").filter({ hasText: "out" }).filter({ hasText: /rows/ }).waitFor();
  expect((await page.locator(".vertex").count()) === 3, "not all vertices are drawn");
  await check(page, "graph");
  await page.locator(".vertex").filter({ hasText: "counted" }).click();
  await text(page, "GROUP BY");
  await page.waitForFunction(() => location.hash.includes("vertex=counted"));
  const before = await page.locator(".strip").textContent();
  await page.waitForFunction((old) => document.querySelector(".strip")?.textContent !== old, before);
});

for (const [tab, shows] of [
  ["batches", "Duration of batches"],
  ["checkpoints", "Completed"],
  ["exceptions", "No failures"],
  ["attempts", "it runs"],
  ["story", "slot on engine"],
  ["configuration", "spark.sql.shuffle.partitions"],
]) {
  await step(`the tab ${tab} of a stream`, async () => {
    await go(page, `jobs/${world.stream}/${tab}`);
    await text(page, shows);
    if (tab === "batches") await page.locator(".chart polyline").first().waitFor();
    await check(page, tab);
  });
}

await step("logs of a job are shown, searched and followed", async () => {
  await go(page, `jobs/${world.script}/logs`);
  await page.getByRole("button", { name: /^stdout/ }).click();
  await page.locator(".log").getByText("line 7 of the script").waitFor();
  await page.getByRole("searchbox").fill("line 7 ");
  await page.waitForFunction(() => document.querySelectorAll(".log > div").length === 1);
  expect((await page.locator(".log mark").textContent()) === "line 7 ", "what was found is not marked");
  await check(page, "logs");
});

await step("a failed job says why", async () => {
  await go(page, `jobs/${world.failed}`);
  await page.getByRole("region", { name: "Failure" }).getByText("is not a number").waitFor();
  await check(page, "failed");
  await page.getByRole("navigation", { name: "Parts of the job" }).getByRole("link", { name: /Exceptions/ }).click();
  await text(page, "USER_RAISED_EXCEPTION");
});

await step("markup in names, messages, queries and logs is text", async () => {
  for (const tab of ["graph", "graph?vertex=evil", "exceptions", "attempts", "story", "configuration", "logs"]) {
    await go(page, `jobs/${world.evil}/${tab}`);
    await page.getByRole("heading", { name: "<img" }).waitFor();
    await page.waitForTimeout(200);
  }
  await go(page, `jobs/${world.script}/logs`);
  await page.locator(".log").getByText("<script>").first().waitFor();
  for (const address of ["", "jobs", "history"]) {
    await go(page, address);
    await text(page, "<img src=x");
  }
  report.inert = !(await page.evaluate(() => "stolen" in window)) && (await page.locator("main img").count()) === 0;
});

await step("a question can be answered with no", async () => {
  await go(page, `jobs/${world.stream}`);
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByText("Running work is interrupted").waitFor();
  await check(page, "question");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.locator(".job-title .badge").filter({ hasText: "running" }).waitFor();
});

await step("a savepoint, a stop with one, and on from there", async () => {
  await go(page, `jobs/${world.stream}`);
  await page.getByRole("button", { name: "Savepoint", exact: true }).click();
  await page.getByRole("button", { name: "Take it" }).click();
  await page.locator(".toast.done").getByText("/savepoint-").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Stop with savepoint" }).click();
  await page.getByRole("button", { name: "Stop it" }).click();
  await page.locator(".job-title .badge").filter({ hasText: "finished" }).waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await page.waitForFunction((old) => !location.hash.includes(old), world.stream);
  await text(page, "Resumed from");
  await page.locator(".job-title .badge").filter({ hasText: "running" }).waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await page.locator(".job-title .badge").filter({ hasText: "canceled" }).waitFor({ timeout: 60_000 });
});

await step("a pipeline is checked as it is typed, and run", async () => {
  await go(page, "submit");
  const field = page.getByLabel("Pipeline as YAML");
  await field.fill("name: typed\nvertices:\n  - name: a\n    kind: sql\n    query: SELECT * FROM nowhere\n");
  await page.locator(".problems").getByText("line 5").waitFor();
  await page.locator(".gutter .mark-bad").filter({ hasText: /^5$/ }).waitFor();
  expect(await page.getByRole("button", { name: "Run this job" }).isDisabled(), "a wrong pipeline can be run");
  await check(page, "submit");
  await page.locator("input[type=file]").setInputFiles({ name: "good.yaml", mimeType: "application/yaml", buffer: Buffer.from(world.good) });
  await page.locator(".vertex").filter({ hasText: "made" }).waitFor();
  await page.getByRole("button", { name: "Run this job" }).click();
  await page.getByRole("heading", { name: "typed_in" }).waitFor();
  await page.locator(".job-title .badge").filter({ hasText: "finished" }).waitFor({ timeout: 90_000 });
  await page.locator(".vertex").filter({ hasText: "5 rows" }).first().waitFor();
});

await step("engines, queue, history and cluster", async () => {
  await go(page, "engines");
  await text(page, "ready");
  await check(page, "engines");
  await go(page, "queue");
  await text(page, "No jobs are waiting");
  await check(page, "queue");
  await go(page, "history");
  await page.getByRole("link", { name: "broken" }).waitFor();
  await check(page, "history");
  await go(page, "cluster");
  await text(page, "Epoch");
  await page.getByRole("searchbox", { name: "Search options" }).fill("engine.master");
  await page.locator("td").getByText("local[2]").waitFor();
  await check(page, "cluster");
});

await step("keys, the palette, light and dark", async () => {
  await go(page, "engines");
  await page.getByRole("heading", { name: "Engines" }).waitFor();
  await page.locator("body").press("g");
  await page.locator("body").press("j");
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await page.locator("body").press("Control+k");
  await page.getByRole("combobox", { name: "Search pages and jobs" }).fill("broken");
  await check(page, "palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "broken" }).waitFor();
  await page.getByRole("button", { name: "Light or dark" }).click();
  expect((await page.evaluate(() => document.documentElement.dataset.theme)) === "dark", "it is not dark");
  await check(page, "dark");
  await page.reload();
  expect((await page.evaluate(() => document.documentElement.dataset.theme)) === "dark", "it was forgotten");
});

await step("a phone", async () => {
  const { page: phone } = await linked({ viewport: { width: 375, height: 720 }, hasTouch: true, isMobile: true });
  for (const address of ["", "jobs", `jobs/${world.failed}`, `jobs/${world.stream}/batches`, "submit", "cluster", "engines"]) {
    await go(phone, address);
    await phone.locator("main h1").waitFor();
    await phone.waitForTimeout(300);
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    expect(!wide, `${address || "overview"} is wider than the screen`);
  }
});

await step("below a path, behind a proxy", async () => {
  const node = new URL(world.address);
  const proxy = createServer((from, to) => {
    if (!from.url.startsWith("/fire/steel/")) return void to.writeHead(404).end();
    const passed = request(
      { host: node.hostname, port: node.port, method: from.method, path: from.url.slice("/fire/steel".length), headers: from.headers },
      (answer) => {
        to.writeHead(answer.statusCode, answer.headers);
        answer.pipe(to);
      },
    );
    passed.on("error", () => to.destroy());
    to.on("close", () => passed.destroy());
    from.pipe(passed);
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  try {
    const below = (lastPage = await open());
    await below.goto(`http://127.0.0.1:${proxy.address().port}/fire/steel/`);
    await below.getByLabel("Token").fill(world.admin);
    await below.getByRole("button", { name: "Sign in" }).click();
    await below.locator(".live").getByText("live", { exact: true }).waitFor();
    await below.getByRole("link", { name: "Jobs", exact: true }).first().click();
    await below.getByRole("link", { name: "broken" }).waitFor();
    await below.context().close();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

await step("ten thousand jobs", async () => {
  const { page: fresh } = await linked();
  const rows = Array.from({ length: 10_000 }, (_, i) => ({
    id: i.toString(16).padStart(32, "0"), name: `job_${i}`, mode: "batch", status: "FINISHED", owner: "team",
    submitted: 1_000_000 - i, changed: 1_000_000, ended: 1_000_000, attempt: 1, restarts: 0,
  }));
  await fresh.route("**/jobs/list", (route) => route.fulfill({ json: { jobs: rows } }));
  await go(fresh, "jobs");
  await fresh.reload();
  await fresh.getByText("10,000 of 10,000").waitFor();
  report.paintMs = await fresh.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null);
  expect((await fresh.locator("tbody tr").count()) < 120, "rows are there that nobody sees");
  await fresh.locator(".table-box").evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await fresh.getByRole("link", { name: "job_9999", exact: true }).waitFor();
  await fresh.getByRole("searchbox").fill("job_77");
  await fresh.getByText("111 of 10,000").waitFor();
});

await browser.close();
process.stdout.write(JSON.stringify(report));
