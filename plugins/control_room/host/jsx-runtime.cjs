module.exports = globalThis.ReactJSXRuntime;
