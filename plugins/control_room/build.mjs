// Build the bundle that Airflow loads: `npm run build`, or `node build.mjs FILE` for another place.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const BUNDLE = "../sluice_airflow/page/control_room.js";

process.chdir(import.meta.dirname);
const result = await build({
  entryPoints: ["src/main.tsx"],
  bundle: true,
  write: false,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  loader: { ".css": "text" },
  alias: { "react/jsx-runtime": "./host/jsx-runtime.cjs", react: "./host/react.cjs" },
  legalComments: "none",
});
const code = result.outputFiles[0].text;

// The first line lets a machine without Node see that sources and bundle belong together.
const folders = ["host", "src"].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`));
const sources = ["build.mjs", "package-lock.json", "package.json", ...folders].sort();
const digest = createHash("sha256");
for (const name of sources) digest.update(`${name}\0`).update(readFileSync(name)).update("\0");
const code_digest = createHash("sha256").update(code).digest("hex");
const line = `// sources ${digest.digest("hex")} code ${code_digest}\n`;
writeFileSync(process.argv[2] ?? BUNDLE, line + code);
