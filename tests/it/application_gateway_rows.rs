//! What Azure Application Gateway's probes do, rule by rule (G1 to G10 of docs/presets.md): each test's comment begins with its row.
