import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** Writes the licence of every package of which something is in the bundle to `assets/licences.txt`. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_options, bundle) {
      const packages = new Map<string, string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const id of Object.keys(chunk.modules)) {
          const found = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(id.replaceAll("\\", "/").replace("\0", ""));
          if (found?.[1] && found[2]) packages.set(found[2], found[1]);
        }
      }
      const texts = [...packages].sort().map(([name, directory]) => {
        const facts = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
        const file = readdirSync(directory).find((f) => /^licen[cs]e/i.test(f));
        const text = file ? readFileSync(join(directory, file), "utf8").trim() : "";
        return `${name} ${facts.version} (${facts.license})\n\n${text}\n`;
      });
      if (!texts.length) this.error("no package was found in the bundle");
      const source = `Firesteel's dashboard contains these packages.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
      this.emitFile({ type: "asset", fileName: "assets/licences.txt", source });
    },
  };
}

const node = process.env.FIRESTEEL_NODE ?? "http://127.0.0.1:8081";

export default defineConfig({
  base: "./", // works below any path
  plugins: [licences()],
  esbuild: { jsx: "automatic" },
  build: {
    outDir: "../src/firesteel/dashboard_files",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the policy of the node lets no inline script or style in
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  // `npm run dev`: the API of a node that runs.
  server: { proxy: { "^/(?!src|node_modules|@|$|index.html|favicon)": { target: node, changeOrigin: true } } },
});
