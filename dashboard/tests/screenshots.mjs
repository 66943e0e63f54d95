/** Takes the pictures of the documentation. `scripts/dashboard-screenshots` starts the node and says where it is. */
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const world = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath: world.chromium, args: ["--no-sandbox"] });

async function open(colorScheme) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 760 }, colorScheme })).newPage();
  const made = await fetch(`${world.address}/dashboard/links`, { method: "POST", headers: { authorization: `Bearer ${world.admin}` } });
  await page.goto((await made.json()).link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return page;
}

async function take(page, name, address, ready, pause = 1500) {
  await page.goto(`${world.address}/#/${address}`);
  await page.locator(ready).first().waitFor();
  await page.waitForTimeout(pause);
  await page.screenshot({ path: `${world.into}/dashboard-${name}.png` });
}

const light = await open("light");
await take(light, "overview", "", ".line p b");
await take(light, "job", `jobs/${world.stream}`, ".vertex-facts", 6000);
await take(light, "failure", `jobs/${world.failed}`, ".failure");
const dark = await open("dark");
await take(dark, "batches", `jobs/${world.stream}/batches`, ".chart polyline", 12_000);
await browser.close();
