// Package grafana holds dashboards for Grafana and rules for Prometheus; only tests are here.
//
// mount.json, node.json and fleet.json are dashboards, rules.yaml has alerts and what they are
// computed from, and RUNBOOK.md says of each alert what it means and what to do.
package grafana
