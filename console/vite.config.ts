import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Emit the licences of all packages of which code is in the build. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_options, bundle) {
      const packages = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const id of Object.keys(chunk.modules)) {
          const path = id.split("/node_modules/").at(-1);
          if (!path || !id.includes("/node_modules/")) continue;
          const [scope = "", name = ""] = path.split("/");
          packages.add(scope.startsWith("@") ? `${scope}/${name}` : scope);
        }
      }
      packages.add("@xterm/xterm"); // also its style sheet
      const notices = [...packages].sort().map(notice);
      this.emitFile({
        type: "asset",
        fileName: "third-party-licences.txt",
        source: `The Mooring console contains the following software.\n\n${notices.join("\n\n")}\n`,
      });
    },
  };
}

function notice(name: string): string {
  const folder = join(import.meta.dirname, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = existsSync(folder) && readdirSync(folder).sort().find((each) => /^(licen[sc]e|copying)/i.test(each));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : "";
  return `${"-".repeat(72)}\n${name} ${version} (${license})\n\n${text}`;
}

export default defineConfig({
  base: "/console/",
  plugins: [react(), licences()],
  build: {
    outDir: "../src/mooring/console/assets",
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
    reportCompressedSize: false,
  },
  test: { include: ["src/**/*.test.ts"] },
});
