// Airflow's page brings React; the bundle contains none
module.exports = globalThis.React;
